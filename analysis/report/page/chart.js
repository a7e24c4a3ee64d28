// What line charts and heat maps share: the frame, the axes, the read-out.

import { drawing, element } from "./dom.js";

export const MARGIN = { top: 12, right: 16, bottom: 44, left: 62 };

// An element that holds a drawing as wide as its place; the reader may move in it by keys.
export function chartFrame(height, label) {
  const readout = element("div", { class: "readout", hidden: true });
  const node = element("div", {
    class: "chart",
    tabindex: "0",
    role: "group",
    "aria-roledescription": "chart",
    "aria-label": label,
    style: { height: `${height}px` },
  });
  return { node, readout };
}

export function canvas(width, height) {
  return drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
}

export function yAxis(scale, ticks, [left, right]) {
  const group = drawing("g", { class: "axis" });
  for (const tick of ticks) {
    const y = Math.round(scale.of(tick)) + 0.5;
    group.append(
      drawing("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
      drawing("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, scale.format(tick)),
    );
  }
  return group;
}

export function xAxis(scale, ticks, y) {
  const group = drawing("g", { class: "axis" });
  for (const tick of ticks) {
    const x = Math.round(scale.of(tick)) + 0.5;
    group.append(
      drawing("line", { class: "tick", x1: x, x2: x, y1: y, y2: y + 5 }),
      drawing("text", { x, y: y + 19, "text-anchor": "middle" }, scale.format(tick)),
    );
  }
  return group;
}

export function axisTitles(width, height, xTitle) {
  const x = (MARGIN.left + width - MARGIN.right) / 2;
  return drawing("text", { class: "axis-title", x, y: height - 6, "text-anchor": "middle" }, xTitle);
}

// Put the read-out beside a point, on the side with more room.
export function placeReadout(readout, frame, x, y) {
  readout.hidden = false;
  const width = frame.clientWidth;
  const left = x > width / 2 ? x - readout.offsetWidth - 14 : x + 14;
  readout.style.left = `${Math.max(0, Math.min(left, width - readout.offsetWidth))}px`;
  readout.style.top = `${Math.max(0, Math.min(y - readout.offsetHeight / 2, frame.clientHeight - readout.offsetHeight))}px`;
}

// Say something to a screen reader.
export function announce(text) {
  document.getElementById("status").textContent = text;
}

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

// Pointer and keys of a chart: one place is lit at a time.
export function makeReadable(node, { nearest, moved, first, light, dim }) {
  let place = null;
  const show = (next, spoken) => {
    place = next;
    if (place === null) dim();
    else light(place, spoken);
  };
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    show(nearest(event.clientX - box.left, event.clientY - box.top), false);
  });
  node.addEventListener("pointerleave", () => show(null, false));
  node.addEventListener("blur", () => show(null, false));
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      show(null, false);
    } else if (KEYS[event.key]) {
      event.preventDefault();
      show(place === null ? first() : moved(place, ...KEYS[event.key]), true);
    }
  });
}
