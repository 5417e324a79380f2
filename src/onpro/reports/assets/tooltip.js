// One tooltip for all charts, by pointer, touch and keyboard.

let anchor = null; // the point the tooltip belongs to

/** Show lines beside a point of a drawing: [slot or null, text] each, the first is the title. */
function showTip(lines, drawing, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.map(([slot, text]) => node("p", {}, swatch(slot), text)));
  tip.hidden = false;
  anchor = { drawing, x, y };
  placeTip();
}

/** Keep the tooltip at its point when the page scrolls, as it does to bring a focus into view. */
function placeTip() {
  if (!anchor) return;
  const tip = byId("tip");
  const at = anchor.drawing.getBoundingClientRect();
  const [x, y] = [at.left + anchor.x, at.top + anchor.y];
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth - 8 ? x - 14 - box.width : x + 14;
  tip.style.left = `${clamp(left, 8, Math.max(8, innerWidth - 8 - box.width))}px`;
  tip.style.top = `${clamp(y - box.height - 10, 8, Math.max(8, innerHeight - 8 - box.height))}px`;
}

function hideTip() {
  anchor = null;
  byId("tip").hidden = true;
}

function swatch(slot) {
  return slot == null ? null : node("span", { class: `swatch ${slotClass(slot)}` });
}

/** Class of a colour slot; the second round of colours is dotted. */
function slotClass(slot) {
  return `s${slot % 8}${slot >= 8 ? " second" : ""}`;
}

/**
 * Make a drawing explorable: one stop for the Tab key, arrows move from item to item.
 *
 * items.count, items.first; items.stride: how far the up and down arrows go;
 * items.nearest(x, y): the item under a point of the drawing, or null;
 * items.show(index): mark it, and give { lines, x, y }, the point in the drawing's pixels;
 * items.clear(): remove the mark.
 */
function explorable(drawing, items) {
  let current = items.first;
  const reveal = (index) => {
    current = index;
    const { lines, x, y } = items.show(index);
    showTip(lines, drawing, x, y);
  };
  const leave = () => {
    items.clear();
    hideTip();
  };
  const point = (event) => {
    const box = drawing.getBoundingClientRect();
    const index = items.nearest(event.clientX - box.left, event.clientY - box.top);
    if (index == null) leave();
    else reveal(index);
  };
  const stride = items.stride ?? 1;
  const moves = {
    ArrowRight: () => current + 1,
    ArrowLeft: () => current - 1,
    ArrowDown: () => current + stride,
    ArrowUp: () => current - stride,
    Home: () => 0,
    End: () => items.count - 1,
  };
  drawing.addEventListener("pointermove", point);
  drawing.addEventListener("pointerdown", point);
  drawing.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") leave(); // a finger that is lifted leaves: what it touched stays
  });
  drawing.addEventListener("focus", () => drawing.matches(":focus-visible") && reveal(current));
  drawing.addEventListener("blur", leave);
  drawing.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = moves[event.key]();
    reveal(next >= 0 && next < items.count ? next : current);
  });
}
