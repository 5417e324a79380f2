// The table of results: sorted by any column, its ticks choose what is drawn.

const measured = (key, title) => [
  { group: title, title: "mean", value: (e) => e[key][0], text: (e) => number(e[key][0]), class: "lead part" },
  { group: title, title: "sd", value: (e) => e[key][1], text: (e) => number(e[key][1]) },
  { group: title, title: "95 % interval", value: (e) => e[key][2], text: (e) => interval(e[key]) },
  {
    group: title, title: "paper", class: "soft",
    value: (e) => e.paper[key]?.[0],
    text: (e) => (e.paper[key] ? withSpread(e.paper[key]) : "–"),
  },
];

const COLUMNS = [
  { title: "method", value: (e) => e.name, isText: true },
  { title: "data", value: (e) => e.data, isText: true },
  { title: "memory", value: (e) => e.memory },
  { title: "precision", value: (e) => e.precision, isText: true },
  { title: "n", value: (e) => e.n },
  ...measured("accuracy", "average accuracy, %"),
  ...measured("forgetting", "average forgetting, %"),
  { title: "incremental, %", value: (e) => e.incremental[0], text: (e) => withSpread(e.incremental), class: "part" },
  { title: "training, s", value: (e) => e.seconds[0], text: (e) => seconds(e.seconds[0]) },
];

/**
 * The table's header, and a body to fill: fill(experiments, most, slotOf) shows the first of them
 * in the order chosen by the header. onPick(experiment, isTicked) says whether a tick may stand.
 */
function resultsTable(table, onPick, onSort) {
  const made = new Map();
  let sorting = null;
  const heads = COLUMNS.map((column) => {
    const head = node("th", { scope: "col", "aria-sort": "none", class: cellClass(column) });
    head.append(node("button", { type: "button", onclick: () => sortBy(column, head) }, column.title));
    return head;
  });
  const groups = [node("td", { colspan: 6 })];
  for (const title of new Set(COLUMNS.map((column) => column.group).filter(Boolean))) {
    groups.push(node("th", { scope: "colgroup", colspan: 4, class: "part" }, title));
  }
  groups.push(node("td", { colspan: 2, class: "part" }));
  const body = node("tbody");
  table.replaceChildren(
    node("caption", {}, "Experiments; the buttons in the header sort."),
    node("thead", {},
      node("tr", {}, ...groups),
      node("tr", {}, node("th", { scope: "col" }, "draw"), ...heads)),
    body);

  function sortBy(column, head) {
    const before = head.getAttribute("aria-sort");
    const isAscending = before === "none" ? Boolean(column.isText) : before === "descending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
    sorting = (a, b) => compare(column.value(a), column.value(b), isAscending);
    onSort();
  }

  function fill(experiments, most, slotOf) {
    const sorted = sorting ? [...experiments].sort(sorting) : experiments;
    const rows = sorted.slice(0, most).map((experiment) => {
      if (!made.has(experiment)) made.set(experiment, resultRow(experiment, onPick));
      return made.get(experiment);
    });
    for (const { experiment, tick, colour } of rows) {
      const slot = slotOf(experiment);
      tick.checked = slot != null;
      colour.setAttribute("class", `swatch ${slot == null ? "" : slotClass(slot)}`);
    }
    replaceWith(body, rows.map((row) => row.element));
  }
  return { fill };
}

/** Whatever the direction, what has no value comes last. */
function compare(a, b, isAscending) {
  if (a == null || b == null) return (a == null) - (b == null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return isAscending ? order : -order;
}

function cellClass(column) {
  return [column.isText ? "" : "number", column.class ?? ""].join(" ").trim() || null;
}

function resultRow(experiment, onPick) {
  const tick = node("input", {
    type: "checkbox",
    "aria-label": `draw ${experiment.title}`,
    onchange: () => { if (!onPick(experiment, tick.checked)) tick.checked = false; },
  });
  const colour = node("span", { class: "swatch" });
  const cells = COLUMNS.map((column, index) => {
    const text = column.text ? column.text(experiment) : String(column.value(experiment));
    const attributes = { class: cellClass(column), title: index ? null : `settings ${experiment.hash}, seeds ${experiment.seeds}` };
    if (index) return node("td", attributes, text);
    const isAmbiguous = experiment.title.endsWith(`(${experiment.hash})`);
    return node("th", { scope: "row", ...attributes }, text, isAmbiguous ? node("small", {}, ` ${experiment.hash}`) : null);
  });
  const element = node("tr", {}, node("td", {}, node("label", { class: "pick" }, tick, colour)), ...cells);
  return { experiment, element, tick, colour };
}
