// The table of results: sorted by any column, its ticks choose what is drawn.

// Classes: `wide` columns are left out of a narrow table, where `below` stands below the text of
// a column that stays; `spare` ones are left out of a phone's.
const measured = (key, title) => {
  const paper = (e) => (e.paper[key] ? withSpread(e.paper[key]) : "–");
  return [
    {
      title, class: "part", isLead: true,
      value: (e) => e[key][0],
      text: (e) => withSpread(e[key]),
      below: (e) => [interval(e[key]), e.paper[key] ? `paper ${number(e.paper[key][0])}` : ""],
    },
    { title: "95\u00a0% interval", class: "wide", value: (e) => e[key][2], text: (e) => interval(e[key]) },
    { title: "paper", class: "wide soft", value: (e) => e.paper[key]?.[0], text: paper },
  ];
};

const COLUMNS = [
  {
    title: "method", isText: true,
    value: (e) => e.name,
    below: (e) => [`${e.data}, M\u00a0=\u00a0${e.memory}, n\u00a0=\u00a0${e.n}`],
  },
  { key: "data", title: "data", class: "wide", value: (e) => e.data, isText: true },
  { key: "memory", title: "memory", class: "wide", value: (e) => e.memory },
  { key: "precision", title: "precision", class: "wide", value: (e) => e.precision, isText: true },
  { title: "n", class: "wide", value: (e) => e.n },
  ...measured("accuracy", "accuracy,\u00a0%"),
  ...measured("forgetting", "forgetting,\u00a0%"),
  { title: "incremental, %", class: "part spare", value: (e) => e.incremental[0], text: (e) => withSpread(e.incremental) },
  { title: "training, s", class: "spare", value: (e) => e.seconds[0], text: (e) => seconds(e.seconds[0]) },
];

const isConstant = (experiments, key) => experiments.every((e) => e[key] === experiments[0][key]);

/** The columns, without data, memory or precision where these are constant: the page's top has them. */
function columnsFor(experiments) {
  return COLUMNS.filter(({ key }) => !key || !isConstant(experiments, key));
}

/**
 * Make the table's header, and a body to fill: fill(experiments, most, slotOf) shows the first of
 * them in the order chosen by the header. onPick(experiment, isTicked) says whether a tick may stand.
 */
function resultsTable(table, columns, onPick, onSort) {
  const made = new Map();
  let sorting = null;
  const heads = columns.map((column) => {
    const head = node("th", { scope: "col", "aria-sort": "none", class: cellClass(column) });
    head.append(node("button", { type: "button", onclick: () => sortBy(column, head) }, column.title));
    return head;
  });
  const body = node("tbody");
  table.replaceChildren(
    node("caption", {}, "Experiments. Select a column header to sort by it."),
    node("thead", {}, node("tr", {}, node("th", { scope: "col" }, "draw"), ...heads)),
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
      if (!made.has(experiment)) made.set(experiment, resultRow(experiment, columns, onPick));
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

/** What a title adds to name, data and memory, to tell experiments apart that share these. */
function distinction({ title, name, data, memory }) {
  const start = `${name}, ${data}, M = ${memory}`;
  return title.startsWith(start) ? title.slice(start.length) : "";
}

function cellClass(column) {
  return [column.isText ? "" : "number", column.class ?? ""].join(" ").trim() || null;
}

function resultRow(experiment, columns, onPick) {
  const tick = node("input", {
    type: "checkbox",
    "aria-label": `draw ${experiment.title}`,
    onchange: () => { if (!onPick(experiment, tick.checked)) tick.checked = false; },
  });
  const colour = node("span", { class: "swatch" });
  const cells = columns.map((column, index) => {
    const text = column.text ? column.text(experiment) : String(column.value(experiment));
    const below = (column.below?.(experiment) ?? []).map((line) => node("small", { class: "below" }, line));
    if (index) return node("td", { class: cellClass(column) }, column.isLead ? node("b", {}, text) : text, ...below);
    const detail = node("small", {}, distinction(experiment));
    return node("th", { scope: "row", title: `settings ${experiment.hash}, seeds ${experiment.seeds}` }, text, detail, ...below);
  });
  const element = node("tr", {}, node("td", {}, node("label", { class: "pick" }, tick, colour)), ...cells);
  return { experiment, element, tick, colour };
}
