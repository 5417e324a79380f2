// Accuracy against training time, a point for each experiment.

/**
 * Points { slot, label, mark, x: [mean, sd, interval], y: likewise }; those whose slot is null are
 * grey, the others have their mark beside them, or in the legend where there is no room.
 */
function scatterChart(place, { title, caption, points, band }) {
  const figure = node("figure", {}, node("figcaption", {}, caption));
  place.append(figure);
  const width = Math.max(280, figure.clientWidth);
  const isNarrow = width < 560;
  const times = points.map((point) => Math.max(point.x[0], 0.001));
  const [fastest, slowest] = [Math.min(...times), Math.max(...times)];
  const xLog = slowest > 20 * fastest;
  const xTicks = xLog ? decades(fastest, slowest) : roundTicks(slowest * 1.05, isNarrow ? 4 : 8);
  const chart = frame(title, {
    width,
    height: isNarrow ? 280 : 340,
    margin: { left: 36, right: 24, top: 26, bottom: 44 },
    xDomain: [xTicks[0], xTicks.at(-1)],
    yDomain: [0, 100],
    xLog,
  });
  const { svg, inner, x, y } = chart;
  yAxis(chart, roundTicks(100), "%");
  xAxis(chart, xTicks, xLog ? "training, s (logarithmic)" : "training, s");

  const placed = points.map((point, index) => ({ ...point, px: x(times[index]), py: y(point.y[0]) }));
  placed.sort((a, b) => a.px - b.px);
  const chosen = placed.filter((point) => point.slot != null);
  for (const { px, py } of placed.filter((point) => point.slot == null)) {
    svg.append(shape("circle", { class: "other", cx: px, cy: py, r: 3 }));
  }
  const unmarked = [];
  const barOf = ({ y: [mean, ...spreads] }) => [1, -1].map((side) => y(mean + side * (spreads[band - 1] ?? 0)));
  const taken = chosen.map((point) => {
    const [high, low] = barOf(point);
    return { left: point.px - 6, right: point.px + 6, top: Math.min(high, point.py - 6), bottom: Math.max(low, point.py + 6) };
  });
  for (const point of chosen) {
    const { slot, mark, px, py } = point;
    const group = shape("g", { class: slotClass(slot) });
    const [high, low] = barOf(point);
    if (low > high) group.append(shape("line", { class: "bar", x1: px, x2: px, y1: high, y2: low }));
    group.append(shape("circle", { class: "dot", cx: px, cy: py, r: 5.5 }));
    const spot = isNarrow ? null : freeSpot(textWidth(mark, 12) + 2, point, chosen, inner, taken);
    if (!spot) unmarked.push({ slot, label: mark });
    else group.append(shape("text", { class: "label", x: spot.left, y: spot.top + 8, "dominant-baseline": "central" }, mark));
    svg.append(group);
  }
  const ring = shape("circle", { class: "ring", r: 9, visibility: "hidden" });
  svg.append(ring);
  figure.append(svg);
  if (unmarked.length) figure.append(legend(unmarked));
  explorable(svg, {
    count: placed.length,
    first: 0,
    nearest: (px, py) => nearestPoint(placed, px, py),
    show: (index) => {
      const point = placed[index];
      ring.setAttribute("cx", point.px);
      ring.setAttribute("cy", point.py);
      ring.setAttribute("visibility", "visible");
      return {
        lines: [[point.slot, point.label], [null, `accuracy ${described(point.y, "%")}`], [null, `training ${withSpread(point.x)} s`]],
        x: point.px,
        y: point.py,
      };
    },
    clear: () => ring.setAttribute("visibility", "hidden"),
  });
  figure.append(dataTable(title, ["experiment", "training, s", "accuracy, %"], () =>
    placed.map((point) => [point.label, withSpread(point.x), withSpread(point.y)])));
}

function decades(low, high) {
  const steps = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    steps.push(...[1, 2, 5].map((factor) => Number((factor * 10 ** power).toPrecision(6))));
  }
  const first = steps.findLastIndex((step) => step <= low);
  const last = steps.findIndex((step) => step >= high);
  return steps.slice(Math.max(0, first), last + 1);
}

/**
 * Where a label covers no point and no other label: beside, above or below its point, and no
 * nearer to another one.
 */
function freeSpot(width, point, points, inner, taken) {
  const { px, py } = point;
  const sides = [px + 10, px - 10 - width, px - width / 2];
  const spots = [[sides[0], py - 8], [sides[1], py - 8], ...[py - 26, py + 10].flatMap((top) => [2, 0, 1].map((side) => [sides[side], top]))];
  for (const [left, top] of spots) {
    const box = { left, right: left + width, top, bottom: top + 16 };
    const isInside = box.left >= inner.left && box.right <= inner.right && box.top >= inner.top && box.bottom <= inner.bottom;
    const isFree = taken.every((other) => box.right < other.left || box.left > other.right || box.bottom < other.top || box.top > other.bottom);
    const own = distance(box, point);
    if (isInside && isFree && points.every((other) => distance(box, other) >= own)) {
      taken.push(box);
      return box;
    }
  }
  return null;
}

function distance(box, { px, py }) {
  const outside = (at, low, high) => Math.max(low - at, at - high, 0);
  return Math.hypot(outside(px, box.left, box.right), outside(py, box.top, box.bottom));
}

function nearestPoint(placed, px, py) {
  let best = null;
  let distance = 30 ** 2;
  placed.forEach((point, index) => {
    const away = (point.px - px) ** 2 + (point.py - py) ** 2 - (point.slot == null ? 0 : 40);
    if (away < distance) [best, distance] = [index, away];
  });
  return best;
}
