// Elements, numbers and labels. What comes from run files only ever becomes text or a label.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes, listeners (onclick: …) and children. */
function node(name, attributes = {}, ...children) {
  return furnish(document.createElement(name), attributes, children);
}

/** An SVG element, likewise. */
function shape(name, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Make these the children; nothing is touched, and no focus lost, where they are already. */
function replaceWith(parent, children) {
  const isSame = parent.children.length === children.length
    && children.every((child, index) => parent.children[index] === child);
  if (!isSame) parent.replaceChildren(...children);
}

const byId = (id) => document.getElementById(id);
const range = (count) => Array.from({ length: count }, (_, index) => index);
function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** A number as people write it, halves rounded away from zero; a dash where there is none. */
function number(value, digits = 1) {
  if (value == null) return "–";
  const size = Number(Math.abs(value).toFixed(digits + 6)); // without the rounding errors of floats
  const [whole, decimals = ""] = (size < 1e-6 ? "0" : String(size)).split(".");
  const kept = BigInt(whole + decimals.slice(0, digits).padEnd(digits, "0"));
  const units = String(kept + (decimals[digits] >= "5" ? 1n : 0n)).padStart(digits + 1, "0");
  const text = digits ? `${units.slice(0, -digits)}.${units.slice(-digits)}` : units;
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

/** The 95 % interval; the report has none for fewer than three runs. */
function interval([mean, , half]) {
  return half == null ? "n too small" : `${number(mean - half)} to ${number(mean + half)}`;
}

/** A point in words, for tooltips. */
function described(point, unit) {
  return `${withSpread(point)}\u00a0${unit}${point[2] == null ? "" : ` (95 %: ${interval(point)})`}`;
}

function withSpread([mean, deviation]) {
  return deviation == null ? number(mean) : `${number(mean)} ± ${number(deviation)}`;
}

function seconds(value) {
  return number(value, value >= 100 ? 0 : 1);
}

const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A table in a box that scrolls; the first column names the rows. */
function boxedTable(caption, header, rows) {
  const head = header.map((title, column) =>
    node("th", { scope: "col", class: column ? "number" : null }, title));
  const body = rows.map(([first, ...rest]) =>
    node("tr", {}, node("th", { scope: "row" }, first),
      ...rest.map((cell) => node("td", { class: "number" }, cell))));
  const table = node("table", {}, node("caption", {}, caption),
    node("thead", {}, node("tr", {}, ...head)), node("tbody", {}, ...body));
  return node("div", { class: "box", tabindex: 0, role: "region", "aria-label": caption }, table);
}

/** A table as an alternative to a chart, made when it is opened. */
function dataTable(caption, header, rows) {
  const details = node("details", {}, node("summary", {}, "Show as a table"));
  details.addEventListener("toggle", () => details.append(boxedTable(caption, header, rows())), { once: true });
  return details;
}
