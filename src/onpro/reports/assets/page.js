// The page: what is filtered, what is drawn, and the sections that show it.

const data = JSON.parse(byId("data").textContent);
const experiments = data.experiments;
const MOST_DRAWN = 16; // eight colours, twice
const FEW = 8; // so many are all drawn at first

const filters = { name: new Set(), method: new Set(), data: new Set(), memory: new Set() };
const slots = new Map(); // experiment → colour; kept when it is no longer drawn
const ownSlots = new Map(); // method and memory → colour, the same on every data set if possible
const drawn = new Set();
const runLists = new Map(); // experiment → its settings and runs, once they were listed
let band = 1;
let mostListed = 200; // more rows take a browser seconds to lay out

const isShown = (experiment) =>
  Object.entries(filters).every(([key, chosen]) => !chosen.size || chosen.has(experiment[key]));
const shownExperiments = () => experiments.filter(isShown);
const drawnExperiments = () => experiments.filter((e) => drawn.has(e) && isShown(e));

/** Draw an experiment, in a colour that no other drawn one of its data set has. */
function draw(experiment) {
  const kin = [...drawn].filter((other) => other.data === experiment.data);
  const taken = new Set(kin.map((other) => slots.get(other)));
  const known = new Set(ownSlots.values());
  const own = `${experiment.memory} ${experiment.name}`;
  const free = range(MOST_DRAWN).filter((slot) => !taken.has(slot));
  const unused = free.find((slot) => slot < 8 && !known.has(slot));
  const wishes = [slots.get(experiment), ownSlots.get(own), unused];
  const slot = wishes.find((wish) => free.includes(wish)) ?? free[0];
  slots.set(experiment, slot);
  if (!ownSlots.has(own)) ownSlots.set(own, slot);
  drawn.add(experiment);
}

/** Draw all that is shown; of more than fit, the methods of one data set and one memory. */
function drawWhatIsShown() {
  const shown = shownExperiments();
  const isFiltered = Object.values(filters).some((chosen) => chosen.size);
  drawn.clear();
  const chosen = shown.length <= (isFiltered ? MOST_DRAWN : FEW) ? shown : comparable(shown);
  chosen.slice(0, MOST_DRAWN).forEach(draw);
}

/** The experiments of the data set and memory with the most methods; of too many, one a method. */
function comparable(group) {
  const methods = (some) => groupBy(some, (e) => e.method);
  const places = [...groupBy(group, (e) => `${e.memory} ${e.data}`).values()];
  const largest = places.reduce((best, place) => (methods(place).size > methods(best).size ? place : best));
  if (largest.length <= MOST_DRAWN) return largest;
  const plainest = (some) => some.reduce((best, e) =>
    (e.name.length - best.name.length || best.n - e.n) < 0 ? e : best);
  return [...methods(largest).values()].map(plainest);
}

function pick(experiment, isTicked) {
  if (!isTicked) drawn.delete(experiment);
  else if (drawn.size < MOST_DRAWN) draw(experiment);
  else {
    byId("shown").textContent = `At most ${MOST_DRAWN} experiments are drawn; untick one first.`;
    return false;
  }
  update();
  return isTicked;
}

/** Names that tell the experiments of a chart apart, and say no more than that. */
function shortLabels(group) {
  const hasMemories = new Set(group.map((e) => e.memory)).size > 1;
  const plain = (e) => (hasMemories ? `${e.name}, M\u00a0=\u00a0${e.memory}` : e.name);
  const alike = groupBy(group, plain);
  const isAlone = (e) => alike.get(plain(e)).length === 1;
  return new Map(group.map((e) => [e, isAlone(e) ? plain(e) : plain(e) + (distinction(e) || ` ${e.hash}`)]));
}

const byData = (group) => groupBy(group, (e) => e.data);

function caption(name, detail) {
  return node("span", {}, name, " ", node("small", {}, detail));
}

function drawAccuracy(place) {
  for (const [name, group] of byData(drawnExperiments())) {
    const labels = shortLabels(group);
    lineChart(place, {
      title: `Average accuracy in percent after each task on ${name}.`,
      caption: caption(name, "average accuracy on the tasks seen so far, %"),
      series: group.map((e) => ({ slot: slots.get(e), label: labels.get(e), values: e.curve })),
      band,
      top: 100,
      unit: "%",
      xTitle: "tasks learned",
      hasEndNumbers: true,
    });
  }
}

function drawForgetting(place) {
  const several = drawnExperiments().filter((e) => e.forgotten[0].length > 1);
  for (const [name, group] of byData(several)) {
    const labels = shortLabels(group);
    lineChart(place, {
      title: `Forgetting in percentage points of each task but the last on ${name}.`,
      caption: caption(name, "forgetting, percentage points"),
      series: group.map((e) => ({
        slot: slots.get(e), label: labels.get(e), values: e.forgotten.map((kind) => kind.slice(0, -1)),
      })),
      band,
      unit: "pp",
      xTitle: "task",
      hasEndNumbers: false,
    });
  }
}

function drawMatrices(place) {
  for (const e of drawnExperiments()) {
    const folded = e.matrix.group > 1 ? `, ${e.matrix.group} tasks a cell` : "";
    heatmap(place, {
      slot: slots.get(e),
      title: `Accuracy in percent on each task after each task: ${e.title}.`,
      caption: caption(e.title, counted(e.n, "run") + folded),
      labels: e.matrix.labels,
      rows: e.matrix.rows,
      scale: LINEAR,
      axes: ["after task", "task"],
      tellCell: (after, task, value) => value == null
        ? [`task ${task} after task ${after}`, "not learned yet"]
        : [`${number(value)} %`, `task ${task} after task ${after}`],
    });
  }
}

function drawConfusion(place) {
  for (const e of drawnExperiments()) {
    const folded = e.confusion.group > 1 ? `, ${e.confusion.group} neighbouring classes a cell` : "";
    const labels = data.labels[e.confusion.labels];
    heatmap(place, {
      slot: slots.get(e),
      title: `Confusion in percent of each true class: ${e.title}.`,
      caption: caption(e.title, counted(e.n, "run") + folded),
      labels,
      ticks: e.confusion.group > 1 ? labels.map((label) => label.split(" … ", 1)[0]) : labels,
      rows: e.confusion.rows,
      scale: ROOT,
      axes: ["true class", "predicted class"],
      tellCell: (truth, guess, value) => [`${number(value)} %`, `${truth} taken for ${guess}`],
    });
  }
}

/** A heat map of classes over evaluations for each experiment that has noted them. */
function drawCourses(place, kind, { about, scale, tell }) {
  for (const e of drawnExperiments().filter((e) => e[kind])) {
    const { labels: index, columns, at: unit, rows, group } = e[kind];
    const labels = data.labels[index];
    const folded = group > 1 ? `, mean of ${group} neighbouring classes a cell` : "";
    heatmap(place, {
      slot: slots.get(e),
      title: `${about}: ${e.title}.`,
      caption: caption(e.title, counted(e.n, "run") + folded),
      labels,
      ticks: group > 1 ? labels.map((label) => label.split(" … ", 1)[0]) : labels,
      columns,
      rows,
      scale: scale(rows),
      axes: ["class", unit],
      tellCell: (name, at, value) => [tell(value), `${name}, ${unit === "images seen" ? `after ${at} images` : `${unit} ${at}`}`],
    });
  }
}

function drawClasses(place) {
  drawCourses(place, "byClass", {
    about: "Accuracy in percent on each class at each evaluation",
    scale: () => LINEAR,
    tell: (value) => (value == null ? "not evaluated yet" : `${number(value)} %`),
  });
}

function drawMemory(place) {
  drawCourses(place, "stored", {
    about: "Images of each class in the memory at each evaluation",
    scale: (rows) => {
      const most = rows.flat().reduce((best, value) => Math.max(best, value), 1);
      return (share) => (100 * share) / most;
    },
    tell: (value) => (value === 1 ? "1 image" : `${number(value, Number.isInteger(value) ? 0 : 1)} images`),
  });
}

// Measures of runs with a shortcut, and their titles.
const CUES = {
  no_cue: "accuracy, no cue", true_cue: "true cue", wrong_cue: "wrong cue",
  reliance: "reliance", reliance_new: "reliance, new task",
  following: "following, same task", control: "without the cue",
  following_any: "following, any task", control_any: "without the cue",
};
const hasCues = (experiment) => experiment.reliance[0] != null;

function drawCues(place) {
  const cued = drawnExperiments().filter(hasCues);
  for (const [name, group] of byData(cued)) {
    const labels = shortLabels(group);
    const rows = group.map((e) => [labels.get(e), ...Object.keys(CUES).map((key) => withSpread(e[key]))]);
    place.append(boxedTable(`Cues on ${name}, %`, ["method", ...Object.values(CUES)], rows));
  }
}

function showPictures() {
  byId("pictures-list").append(...data.pictures.map(({ title, about, src }) =>
    node("figure", {}, node("figcaption", {}, title),
      node("div", { class: "box", role: "region", "aria-label": title, tabindex: 0 }, node("img", { src, alt: about })),
      node("p", { class: "note" }, about))));
}

/** Show the sections that there is anything for, and their links. */
function showSections() {
  const present = {
    classes: experiments.some((e) => e.byClass),
    memory: experiments.some((e) => e.stored),
    cues: experiments.some(hasCues),
    pictures: data.pictures.length > 0,
  };
  for (const [id, isPresent] of Object.entries(present)) {
    byId(id).hidden = !isPresent;
    document.querySelector(`nav a[href="#${id}"]`).hidden = !isPresent;
  }
}

function drawTimes(place) {
  const places = new Set(drawnExperiments().map((e) => e.data));
  for (const [name, group] of byData(shownExperiments().filter((e) => places.has(e.data)))) {
    const labels = shortLabels(group);
    const marks = shortLabels(group.filter((e) => drawn.has(e)));
    scatterChart(place, {
      title: `Average accuracy in percent against seconds of training on ${name}.`,
      caption: caption(name, "average accuracy at the end, %"),
      points: group.map((e) => ({
        slot: drawn.has(e) ? slots.get(e) : null, label: labels.get(e), mark: marks.get(e), x: e.seconds, y: e.accuracy,
      })),
      band,
    });
  }
}

const CHARTS = {
  "accuracy-charts": drawAccuracy,
  "forgetting-charts": drawForgetting,
  "matrices-maps": drawMatrices,
  "confusion-maps": drawConfusion,
  "classes-maps": drawClasses,
  "memory-maps": drawMemory,
  "cues-tables": drawCues,
  "time-charts": drawTimes,
};

function drawCharts() {
  hideTip();
  for (const [id, fillIn] of Object.entries(CHARTS)) {
    const place = byId(id);
    place.replaceChildren();
    fillIn(place);
    if (!place.firstChild) place.append(node("p", { class: "empty" }, "Nothing is chosen: tick an experiment in the table."));
  }
}

/** Make the lists agree with what is filtered, sorted and drawn. */
function list() {
  const shown = shownExperiments();
  const runs = shown.reduce((sum, e) => sum + e.n, 0);
  byId("shown").textContent = shown.length
    ? `${counted(shown.length, "experiment")}, ${counted(runs, "run")}; ${drawnExperiments().length} drawn.`
    : "No experiment is left: untick a filter.";
  table.fill(shown, mostListed, (e) => (drawn.has(e) ? slots.get(e) : null));
  replaceWith(byId("run-list"), shown.slice(0, mostListed).map(runsOf));
  for (const button of document.querySelectorAll(".more")) {
    button.hidden = shown.length <= mostListed;
    button.textContent = `Show all ${counted(shown.length, "experiment")}`;
  }
}

function update() {
  list();
  drawCharts();
}

function filterGroup(key, title) {
  const values = [...new Set(experiments.map((e) => e[key]))].sort((a, b) => compare(a, b, true));
  if (values.length < 2) return null;
  const chips = values.map((value) => {
    const box = node("input", { type: "checkbox", name: key, value: String(value), onchange: () => {
      filters[key][box.checked ? "add" : "delete"](value);
      drawWhatIsShown();
      update();
    } });
    return node("label", { class: "chip" }, box, node("span", {}, String(value)));
  });
  return node("fieldset", {}, node("legend", {}, title), ...chips);
}

function bandChoice() {
  const choices = [[1, "standard deviation"], [2, "95 % interval"], [0, "none"]];
  return node("fieldset", {}, node("legend", {}, "bands"), ...choices.map(([value, title]) => {
    const button = node("input", { type: "radio", name: "band", value, onchange: () => {
      band = value;
      drawCharts();
    } });
    button.checked = value === band;
    return node("label", { class: "chip" }, button, node("span", {}, title));
  }));
}

function facts(pairs) {
  return node("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
    node("div", {}, node("dt", {}, name), node("dd", {}, value))));
}

/** Settings, runs, hardware and versions of an experiment, made when they are opened. */
function runsOf(experiment) {
  if (runLists.has(experiment)) return runLists.get(experiment);
  const details = node("details", {},
    node("summary", {}, experiment.title, node("span", {}, ` · ${counted(experiment.n, "run")} · settings ${experiment.hash}`)));
  details.addEventListener("toggle", () => {
    const settings = experiment.settings.map((index) => data.settings[index]);
    const kinds = [...new Set(experiment.runs.map((run) => run.at(-1)))];
    const header = kinds.length > 1 ? [...data.runColumns, "made on"] : data.runColumns;
    const lines = experiment.runs.map((run) => {
      const cells = run.slice(0, -1).map((cell) => (typeof cell === "string" ? cell : number(cell, 2)));
      return kinds.length > 1 ? [...cells, `no. ${kinds.indexOf(run.at(-1)) + 1}`] : cells;
    });
    const title = `Runs of ${experiment.title}`;
    details.append(node("div", { class: "inside" },
      node("div", { class: "box", role: "region", "aria-label": title, tabindex: 0 },
        node("table", {}, node("caption", {}, title),
          node("thead", {}, node("tr", {}, ...header.map((cell, column) => node("th", { scope: "col", class: column ? "number" : null }, cell)))),
          node("tbody", {}, ...lines.map(([folder, ...rest]) =>
            node("tr", {}, node("th", { scope: "row", title: folder }, folder.split("/").at(-1)), ...rest.map((cell) => node("td", { class: "number" }, cell))))))),
      ...kinds.map((kind, index) => node("div", {},
        node("h3", {}, kinds.length > 1 ? `Hardware and versions, no. ${index + 1}` : "Hardware and versions"),
        facts(data.conditions[kind]))),
      node("div", {}, node("h3", {}, "Settings"),
        settings.length ? facts(settings) : node("p", { class: "empty" }, "config.json is missing or cannot be read."))));
  }, { once: true });
  runLists.set(experiment, details);
  return details;
}

function introduce() {
  const runs = experiments.reduce((sum, e) => sum + e.n, 0);
  const names = [...new Set(experiments.map((e) => e.data))];
  const where = names.length > 4 ? counted(names.length, "data set") : names.join(", ");
  const constants = [["memory", "M\u00a0=\u00a0"], ["precision", ""]].filter(([key]) => isConstant(experiments, key));
  const inCommon = constants.map(([key, sign]) => `, ${sign}${experiments[0][key]}`).join("");
  byId("about").textContent = `${counted(runs, "run")} of ${counted(experiments.length, "experiment")} on ${where}${inCommon}, reported by onpro ${data.version}`;
  if (data.skipped.length) {
    const box = byId("skipped");
    box.hidden = false;
    box.querySelector("summary").textContent = `${counted(data.skipped.length, "folder")} skipped`;
    box.querySelector("ul").append(...data.skipped.map((line) => node("li", {}, line)));
  }
}

introduce();
showSections();
showPictures();
const hasManyNames = new Set(experiments.map((e) => e.name)).size > 20;
const groups = [[hasManyNames ? "method" : "name", "method"], ["data", "data set"], ["memory", "memory"]];
byId("filters").append(...groups.map(([key, title]) => filterGroup(key, title)).filter(Boolean));
byId("bands").append(bandChoice());
ramp(byId("matrices-ramp"), LINEAR);
ramp(byId("confusion-ramp"), ROOT);
ramp(byId("classes-ramp"), LINEAR);
const table = resultsTable(byId("table"), columnsFor(experiments), pick, list);
for (const button of document.querySelectorAll(".more")) {
  button.addEventListener("click", () => {
    mostListed = Infinity;
    list();
  });
}
drawWhatIsShown();
update();

let width = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  drawCharts();
}).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
document.addEventListener("submit", (event) => event.preventDefault());
addEventListener("scroll", placeTip, { passive: true });
