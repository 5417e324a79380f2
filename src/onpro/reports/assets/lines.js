// Charts of a number by task, a line for each experiment.

/** A frame for a chart: an SVG with a title, and scales from values to pixels. */
function frame(title, { width, height, margin, xDomain, yDomain, xLog = false }) {
  const inner = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const along = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);
  const warp = xLog ? Math.log10 : (value) => value;
  const warped = xDomain.map(warp);
  const x = (value) => inner.left + along(warp(value), warped) * (inner.right - inner.left);
  const y = (value) => inner.bottom - along(clamp(value, ...yDomain), yDomain) * (inner.bottom - inner.top);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title} Arrow keys move from point to point.` },
    shape("title", {}, title));
  return { svg, inner, x, y };
}

function yAxis({ svg, inner, y }, ticks, unit) {
  for (const tick of ticks) {
    svg.append(
      shape("line", { class: tick ? "grid" : "axis", x1: inner.left, x2: inner.right, y1: y(tick), y2: y(tick) }),
      shape("text", { x: inner.left - 8, y: y(tick), "text-anchor": "end", "dominant-baseline": "central" }, String(tick)));
  }
  svg.append(shape("text", { x: inner.left - 8, y: inner.top - 12, "text-anchor": "end" }, unit));
}

function xAxis({ svg, inner, x }, ticks, title) {
  for (const tick of ticks) {
    svg.append(shape("text", { x: x(tick), y: inner.bottom + 18, "text-anchor": "middle" }, String(tick)));
  }
  svg.append(shape("text", { x: (inner.left + inner.right) / 2, y: inner.bottom + 36, "text-anchor": "middle" }, title));
}

/** Round steps from 0 to at least the largest value. */
function roundTicks(largest, about = 5) {
  const rough = Math.max(largest, 1e-9) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  return range(Math.ceil(largest / step - 1e-9) + 1).map((index) => Number((index * step).toPrecision(6)));
}

const FONT = getComputedStyle(document.body).fontFamily;
const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, size) {
  ruler.font = `${size}px ${FONT}`;
  return Math.ceil(ruler.measureText(text).width);
}

/** The text, without letters from its middle where it is wider than the room for it. */
function fit(text, room, size) {
  let fitted = text;
  for (let kept = text.length - 2; kept > 0 && textWidth(fitted, size) > room; kept -= 1) {
    fitted = `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  }
  return fitted;
}

/** Every how many items have a label, if labels need so many pixels and items are so far apart. */
function labelStep(needed, distance) {
  const least = needed / distance;
  return [1, 2, 5, 10, 20, 50, 100].find((step) => step >= least) ?? Math.ceil(least);
}

/** Move labels { y, … } apart so that none covers another; those too close are centred together. */
function spread(labels, gap, top, bottom) {
  const height = (group) => gap * (group.length - 1);
  const start = (group) => {
    const centre = group.reduce((sum, label) => sum + label.y, 0) / group.length;
    return clamp(centre - height(group) / 2, top, bottom - height(group));
  };
  const groups = [];
  for (const label of labels.sort((a, b) => a.y - b.y)) {
    let group = [label];
    while (groups.length && start(group) < start(groups.at(-1)) + height(groups.at(-1)) + gap) {
      group = [...groups.pop(), ...group];
    }
    groups.push(group);
  }
  return groups.flatMap((group) => {
    const first = start(group);
    return group.map((label, index) => ({ ...label, y: first + index * gap }));
  });
}

/**
 * A line for each series { slot, label, values: [means, deviations, intervals] }, with a band of
 * what `band` names: 1 the standard deviation, 2 the 95 % interval, 0 none. The vertical axis ends
 * at `top`, or where the bands do.
 */
function lineChart(place, { title, caption, series, band, top, unit, xTitle, hasEndNumbers }) {
  const figure = node("figure", {}, node("figcaption", {}, caption));
  place.append(figure);
  const width = Math.max(280, figure.clientWidth);
  const isNarrow = width < 560;
  const tasks = Math.max(...series.map((one) => one.values[0].length));
  const endTexts = series.map(({ label, values: [means] }) =>
    [hasEndNumbers ? number(means.at(-1)) : "", isNarrow ? "" : label].join("\u00a0 ").trim());
  const longest = Math.max(...endTexts.map((text) => textWidth(text, 12)));
  const right = longest ? Math.min(longest + 40, width * 0.4) : 14;
  const ticks = roundTicks(top ?? highest(series, band));
  const chart = frame(title, {
    width,
    height: isNarrow ? 270 : 330,
    margin: { left: 36, right, top: 26, bottom: 44 },
    xDomain: [1, Math.max(2, tasks)],
    yDomain: [0, ticks.at(-1)],
  });
  const { svg, inner, x, y } = chart;
  yAxis(chart, ticks, unit);
  const step = labelStep(36, (inner.right - inner.left) / tasks);
  xAxis(chart, range(tasks).map((task) => task + 1).filter((task) => (task - 1) % step === 0), xTitle);

  for (const { slot, values: [means, ...spreads] } of series) {
    const group = shape("g", { class: slotClass(slot) });
    const wide = spreads[band - 1];
    if (wide?.some((half) => half != null)) {
      const edge = (sign) => means.map((mean, task) => [x(task + 1), y(mean + sign * (wide[task] ?? 0))]);
      group.append(shape("polygon", { class: "band", points: [...edge(1), ...edge(-1).reverse()].join(" ") }));
    }
    group.append(shape("polyline", { class: "line", points: means.map((mean, task) => [x(task + 1), y(mean)]).join(" ") }));
    if (tasks <= 25) {
      group.append(...means.map((mean, task) => shape("circle", { class: "dot", cx: x(task + 1), cy: y(mean), r: 3.5 })));
    }
    svg.append(group);
  }

  const labels = series.map(({ slot, values: [means] }, index) => ({
    slot, from: [x(means.length), y(means.at(-1))], y: y(means.at(-1)), text: fit(endTexts[index], right - 36, 12),
    isFar: means.length < tasks,  // its leader must not look as if the line went on
  })).filter(({ text }) => text);
  for (const { slot, from, y: at, text, isFar } of spread(labels, 14, inner.top, inner.bottom)) {
    const start = inner.right + 34;
    svg.append(
      shape("polyline", { class: `leader ${isFar ? "far" : ""} ${slotClass(slot)}`, points: `${from[0] + 6},${from[1]} ${start - 14},${at} ${start - 3},${at}` }),
      shape("text", { class: "label", x: start, y: at, "dominant-baseline": "central" }, text));
  }

  const guide = shape("line", { class: "guide", y1: inner.top, y2: inner.bottom, visibility: "hidden" });
  svg.append(guide);
  figure.append(svg);
  if (isNarrow) figure.append(legend(series));
  explorable(svg, {
    count: tasks,
    first: tasks - 1,
    nearest: (px) => clamp(Math.round(((px - inner.left) / (inner.right - inner.left)) * Math.max(1, tasks - 1)), 0, tasks - 1),
    show: (task) => {
      guide.setAttribute("x1", x(task + 1));
      guide.setAttribute("x2", x(task + 1));
      guide.setAttribute("visibility", "visible");
      const here = series.filter((one) => task < one.values[0].length);
      here.sort((a, b) => b.values[0][task] - a.values[0][task]);
      return { lines: [[null, `task ${task + 1}`], ...here.map((one) => [one.slot, pointText(one, task, unit)])], x: x(task + 1), y: inner.top + 40 };
    },
    clear: () => guide.setAttribute("visibility", "hidden"),
  });
  figure.append(dataTable(title, ["experiment", ...range(tasks).map((task) => `task ${task + 1}`)], () =>
    series.map((one) => [one.label, ...range(tasks).map((task) =>
      withSpread(one.values.map((kind) => kind[task])))])));
}

/** The largest value with its band, but no more than 100 and no less than 10 percent. */
function highest(series, band) {
  const ends = series.flatMap(({ values }) => values[0].map((mean, task) => mean + ((band && values[band]?.[task]) || 0)));
  return clamp(Math.max(...ends), 10, 100);
}

function pointText({ label, values }, task, unit) {
  return `${described(range(3).map((kind) => values[kind]?.[task]), unit)}  ${label}`;
}

function legend(series) {
  return node("ul", { class: "legend" },
    ...series.map(({ slot, label }) => node("li", {}, swatch(slot), label)));
}
