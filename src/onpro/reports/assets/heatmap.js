// Heat maps of matrices in percent, on a canvas: a hundred classes are ten thousand cells.

const LINEAR = (share) => share;
const ROOT = Math.sqrt; // small errors stay visible beside a strong diagonal

/** The colours of the page's scheme, as [[r, g, b], …] from low to high. */
function heatColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const stops = ["low", "middle", "high"].map((name) =>
    [1, 3, 5].map((at) => parseInt(read(`--heat-${name}`).slice(at, at + 2), 16)));
  return { stops, inkLow: read("--heat-ink-low"), inkHigh: read("--heat-ink-high"), quiet: read("--quiet") };
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
 * A heat map of rows of percents (a row may be shorter than there are columns), labelled, with
 * tellCell(row, column, value) for the tooltip.
 */
function heatmap(place, { slot, title, caption, labels, rows, scale, corner, tellCell }) {
  const figure = node("figure", {}, node("figcaption", {}, swatch(slot), " ", caption));
  place.append(figure);
  const canvas = node("canvas", { role: "img", tabindex: 0, "aria-label": `${title} Arrow keys move from cell to cell.` });
  const cursor = node("div", { class: "cursor", hidden: true });
  const map = node("div", { class: "map" }, canvas, cursor);
  figure.append(map);

  const pen = canvas.getContext("2d");
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.font = font;
  const count = labels.length;
  const shown = labels.map((label) => shorten(label, 14));
  const labelWidth = Math.ceil(Math.max(...shown.map((label) => pen.measureText(label).width)));
  const isUpright = labelWidth > 24;
  const margin = { left: labelWidth + 24, bottom: (isUpright ? labelWidth : 12) + 24 };
  const widest = Math.min(420, figure.clientWidth) - margin.left;
  const cell = Math.max(1, Math.min(44, count > 40 ? widest / count : Math.floor(widest / count)));
  const width = margin.left + cell * count;
  const height = cell * count + margin.bottom;
  const sharp = Math.max(1, devicePixelRatio);
  canvas.width = Math.ceil(width * sharp);
  canvas.height = Math.ceil(height * sharp);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  pen.scale(sharp, sharp);

  const { stops, inkLow, inkHigh, quiet } = heatColours();
  const gap = cell > 6 ? 1 : 0;
  const hasNumbers = cell >= 22;
  pen.font = font;
  pen.textBaseline = "middle";
  rows.forEach((row, i) => row.forEach((value, j) => {
    const share = scale(value / 100);
    pen.fillStyle = heat(stops, share);
    pen.fillRect(margin.left + j * cell, i * cell, cell - gap, cell - gap);
    if (hasNumbers) {
      pen.fillStyle = share > 0.58 ? inkHigh : inkLow;
      pen.textAlign = "center";
      pen.fillText(number(value, 0), margin.left + (j + 0.5) * cell, (i + 0.5) * cell);
    }
  }));
  pen.fillStyle = quiet;
  const step = Math.ceil(13 / cell);
  shown.forEach((label, index) => {
    if (index % step) return;
    pen.textAlign = "right";
    pen.fillText(label, margin.left - 6, (index + 0.5) * cell);
    pen.save();
    pen.translate(margin.left + (index + 0.5) * cell, count * cell + (isUpright ? 4 : 9));
    if (isUpright) pen.rotate(-Math.PI / 2);
    pen.textAlign = isUpright ? "right" : "center";
    pen.fillText(label, 0, 0);
    pen.restore();
  });
  pen.textAlign = "center";
  pen.fillText(corner[1], margin.left + (count * cell) / 2, height - 8);
  pen.translate(7, (count * cell) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(corner[0], 0, 0);

  explorable(canvas, {
    count: count * count,
    first: 0,
    stride: count,
    nearest: (px, py) => {
      const [row, column] = [Math.floor(py / cell), Math.floor((px - margin.left) / cell)];
      const isCell = row >= 0 && column >= 0 && row < count && column < count && rows[row][column] != null;
      return isCell ? row * count + column : null;
    },
    show: (index) => {
      const [row, column] = [Math.floor(index / count), index % count];
      cursor.hidden = false;
      cursor.style.left = `${margin.left + column * cell - 2}px`;
      cursor.style.top = `${row * cell - 2}px`;
      cursor.style.width = cursor.style.height = `${cell + 4 - gap}px`;
      return {
        lines: tellCell(labels[row], labels[column], rows[row][column]).map((text) => [null, text]),
        x: margin.left + (column + 1) * cell,
        y: row * cell,
      };
    },
    clear: () => { cursor.hidden = true; },
  });
  figure.append(dataTable(title, [`${corner[0]} \\ ${corner[1]}`, ...labels], () =>
    rows.map((row, index) => [labels[index], ...labels.map((_, column) => number(row[column]))])));
}
