// Heat maps of matrices in percent, on a canvas: a hundred classes are ten thousand cells.

const LINEAR = (share) => share;
const ROOT = Math.sqrt; // small errors stay visible beside a strong diagonal
const TICK_SIZE = 11; // pixels; .tick in the style

/** The colours of the page's scheme, as [[r, g, b], …] from low to high. */
function heatColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const stops = ["low", "middle", "high"].map((name) =>
    [1, 3, 5].map((at) => parseInt(read(`--heat-${name}`).slice(at, at + 2), 16)));
  return { stops, inkLow: read("--heat-ink-low"), inkHigh: read("--heat-ink-high") };
}

function heat(stops, share) {
  const at = clamp(share, 0, 1) * (stops.length - 1);
  const index = Math.min(Math.floor(at), stops.length - 2);
  const mixed = stops[index].map((low, channel) => low + (stops[index + 1][channel] - low) * (at - index));
  return `rgb(${mixed.map(Math.round).join(" ")})`;
}

/** The scale beside the maps, with ticks where the values lie on it. */
function ramp(place, scale) {
  const ticks = (scale === ROOT ? [0, 5, 25, 50, 100] : [0, 25, 50, 75, 100]).map((percent) => {
    const item = node("li", {}, percent === 100 ? "100 %" : String(percent));
    item.style.left = `${100 * scale(percent / 100)}%`;
    return item;
  });
  place.replaceChildren(node("div"), node("ol", { "aria-label": "colour scale in percent" }, ...ticks));
}

/**
 * A heat map of rows of percents (a row may be shorter than there are columns). Its columns have the
 * labels of its rows unless they have their own. Its axes show as many of the ticks as there is room
 * for; tellCell(row label, column label, value) is the tooltip.
 */
function heatmap(place, { slot, title, caption, labels, ticks = labels, columns, rows, scale, axes, tellCell }) {
  const figure = node("figure", {}, node("figcaption", {}, swatch(slot), " ", caption));
  place.append(figure);
  const room = Math.min(420, figure.clientWidth);
  const shorten = (label) => fit(label, room / 3, TICK_SIZE);
  const names = ticks.map(shorten);
  const heads = columns?.map(shorten) ?? names;
  const across = columns ?? labels;
  const count = across.length;
  const widestOf = (texts) => Math.max(...texts.map((text) => textWidth(text, TICK_SIZE)));
  const longest = widestOf(heads);
  const isUpright = longest > 24;
  const breadth = isUpright ? TICK_SIZE : longest; // of a column's label
  const margin = { left: widestOf(names) + 24, right: breadth / 2, top: TICK_SIZE / 2 };
  const widest = room - margin.left - margin.right;
  const most = Math.max(count, labels.length);
  const cell = Math.max(1, Math.min(44, most > 40 ? widest / most : Math.floor(widest / most)));
  const [wide, high] = [cell * count, cell * labels.length];
  const end = { x: margin.left + wide, y: margin.top + high };

  const canvas = node("canvas", { role: "img", tabindex: 0, "aria-label": `${title} Arrow keys move from cell to cell.` });
  const cursor = node("div", { class: "cursor", hidden: true });
  const map = node("div", { class: "map" }, canvas, cursor);
  const height = end.y + (isUpright ? longest : TICK_SIZE) + 24;
  setPixels(map, { width: end.x + margin.right, height });
  setPixels(canvas, { left: margin.left, top: margin.top, width: wide, height: high });
  const write = (kind, text, at) => map.append(setPixels(node("span", { class: kind, "aria-hidden": "true" }, text), at));
  const step = labelStep(Math.max(TICK_SIZE, breadth) + 4, cell);
  const eachTick = (texts, place) => texts.forEach((text, index) => {
    if (index % step === 0) place(text, (index + 0.5) * cell);
  });
  eachTick(names, (name, middle) =>
    write("row tick", name, { left: margin.left - 6, top: margin.top + middle }));
  eachTick(heads, (head, middle) =>
    write(isUpright ? "upright tick" : "tick", head, { left: margin.left + middle, top: end.y + 4 }));
  write("upright title", axes[0], { left: 6, top: margin.top + high / 2 });
  write("title", axes[1], { left: margin.left + wide / 2, top: height - TICK_SIZE });
  figure.append(map);
  const gap = cell > 6 ? 1 : 0;
  paint(canvas, rows, { wide, high, cell, gap, scale });

  explorable(canvas, {
    count: count * labels.length,
    first: 0,
    stride: count,
    nearest: (px, py) => {
      const [row, column] = [Math.floor(py / cell), Math.floor(px / cell)];
      return rows[row]?.[column] == null ? null : row * count + column;
    },
    show: (index) => {
      const [row, column] = [Math.floor(index / count), index % count];
      const size = cell + 4 - gap;
      cursor.hidden = false;
      setPixels(cursor, { left: margin.left + column * cell - 2, top: margin.top + row * cell - 2, width: size, height: size });
      return {
        lines: tellCell(labels[row], across[column], rows[row][column]).map((text) => [null, text]),
        x: (column + 1) * cell,
        y: row * cell,
      };
    },
    clear: () => { cursor.hidden = true; },
  });
  figure.append(dataTable(title, [`${axes[0]} \\ ${axes[1]}`, ...across], () =>
    rows.map((row, index) => [labels[index], ...across.map((_, column) => number(row[column]))])));
}

/** Fill the cells, with numbers where they fit. */
function paint(canvas, rows, { wide, high, cell, gap, scale }) {
  const sharp = Math.max(1, devicePixelRatio);
  [canvas.width, canvas.height] = [wide, high].map((side) => Math.ceil(side * sharp));
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.font = `${TICK_SIZE}px ${FONT}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  const { stops, inkLow, inkHigh } = heatColours();
  rows.forEach((row, i) => row.forEach((value, j) => {
    if (value == null) return;
    const share = scale(value / 100);
    pen.fillStyle = heat(stops, share);
    pen.fillRect(j * cell, i * cell, cell - gap, cell - gap);
    if (cell < 22) return;
    pen.fillStyle = share > 0.58 ? inkHigh : inkLow;
    pen.fillText(number(value, 0), (j + 0.5) * cell, (i + 0.5) * cell);
  }));
}

function setPixels(element, pixels) {
  for (const [name, value] of Object.entries(pixels)) element.style[name] = `${value}px`;
  return element;
}
