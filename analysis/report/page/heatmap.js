// Heat maps: a cell a value, read by pointer or by keys, with the scale of its colours.

import { announce, canvas, chartFrame, makeReadable, placeReadout } from "./chart.js";
import { diverging, sequential } from "./colours.js";
import { drawing, element } from "./dom.js";
import { formatNumber, formatWithError } from "./format.js";
import { ordinalScale } from "./scales.js";

const EDGE = { top: 10, right: 12, bottom: 44, left: 46 };
const BAR = { gap: 14, width: 14, labels: 58 };

// Draw cells into a new element.
//   columns, rows  { title, labels, format }, rows from the bottom up
//   value(i, j), error(i, j) of column i and row j
export function heatMap({ columns, rows, value, error, label, width }) {
  const height = Math.max(190, Math.min(420, rows.labels.length * 24 + EDGE.top + EDGE.bottom));
  const { node, readout } = chartFrame(height, label);
  const right = width - EDGE.right - BAR.gap - BAR.width - BAR.labels;
  const x = ordinalScale(columns.labels, [EDGE.left, right]);
  const y = ordinalScale(rows.labels, [height - EDGE.bottom, EDGE.top]);
  const colours = colourScale(columns, rows, value);
  const svg = canvas(width, height);
  svg.append(cells(columns, rows, value, x, y, colours), axes(columns, rows, x, y, right, height));
  svg.append(colourBar(colours, right + BAR.gap, [height - EDGE.bottom, EDGE.top]));
  const light = drawing("rect", { class: "lit-cell", width: x.width, height: -y.width, visibility: "hidden" });
  svg.append(light);
  node.append(svg, readout);
  makeReadable(node, reading({ node, readout, light, columns, rows, value, error, x, y, right, height }));
  return node;
}

function colourScale(columns, rows, value) {
  const found = [];
  columns.labels.forEach((_, i) => rows.labels.forEach((__, j) => found.push(value(i, j))));
  const known = found.filter((one) => !Number.isNaN(one));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (low < 0 && high > 0) {
    const reach = Math.max(-low, high);
    return { low: -reach, high: reach, of: (one) => diverging((one + reach) / (2 * reach)) };
  }
  const span = high - low || 1;
  return { low, high, of: (one) => sequential((one - low) / span) };
}

function cells(columns, rows, value, x, y, colours) {
  const group = drawing("g", { class: "cells" });
  columns.labels.forEach((_, i) => rows.labels.forEach((__, j) => {
    const one = value(i, j);
    if (Number.isNaN(one)) return;
    // A hair wider than its place, so that no seam shows between cells.
    const cell = drawing("rect", {
      x: (x.middle(i) - x.width / 2).toFixed(2),
      y: (y.middle(j) + y.width / 2).toFixed(2),
      width: (x.width + 0.4).toFixed(2),
      height: (-y.width + 0.4).toFixed(2),
    });
    cell.style.fill = colours.of(one);
    group.append(cell);
  }));
  return group;
}

function axes(columns, rows, x, y, right, height) {
  const group = drawing("g", { class: "axis" });
  const text = (content, place) => group.append(drawing("text", place, content));
  for (const i of x.shown(42)) {
    text(columns.format(columns.labels[i]), { x: x.middle(i), y: height - EDGE.bottom + 17, "text-anchor": "middle" });
  }
  for (const j of y.shown(15)) {
    text(rows.format(rows.labels[j]), { x: EDGE.left - 7, y: y.middle(j) + 4, "text-anchor": "end" });
  }
  const middle = { x: (EDGE.left + right) / 2, y: height - 6, "text-anchor": "middle", class: "axis-title" };
  text(columns.title, middle);
  const turned = `translate(12 ${(EDGE.top + height - EDGE.bottom) / 2}) rotate(-90)`;
  text(rows.title, { transform: turned, "text-anchor": "middle", class: "axis-title" });
  return group;
}

function colourBar(colours, left, [bottom, top]) {
  const group = drawing("g", { class: "axis" });
  const slices = 32;
  const step = (bottom - top) / slices;
  for (let i = 0; i < slices; i += 1) {
    const slice = drawing("rect", { x: left, y: bottom - (i + 1) * step, width: BAR.width, height: step + 0.5 });
    slice.style.fill = colours.of(colours.low + ((i + 0.5) / slices) * (colours.high - colours.low));
    group.append(slice);
  }
  for (const share of colours.low === colours.high ? [0] : [0, 0.5, 1]) {
    const y = bottom - share * (bottom - top);
    const tick = colours.low + share * (colours.high - colours.low);
    const place = { x: left + BAR.width + 5, y: Math.min(bottom, Math.max(top + 8, y + 4)) };
    group.append(drawing("text", place, formatNumber(tick, 3)));
  }
  return group;
}

function reading(view) {
  const { columns, rows, x, y } = view;
  const within = (index, labels) => Math.min(labels.length - 1, Math.max(0, index));
  return {
    first: () => ({ i: 0, j: 0 }),
    nearest: (px, py) => {
      if (px < EDGE.left || px > view.right || py < EDGE.top || py > view.height - EDGE.bottom) return null;
      const i = within(Math.floor((px - EDGE.left) / x.width), columns.labels);
      const j = within(Math.floor((py - (view.height - EDGE.bottom)) / y.width), rows.labels);
      return { i, j };
    },
    moved: ({ i, j }, along, up) => ({ i: within(i + along, columns.labels), j: within(j + up, rows.labels) }),
    light: ({ i, j }, spoken) => {
      view.light.setAttribute("x", x.middle(i) - x.width / 2);
      view.light.setAttribute("y", y.middle(j) + y.width / 2);
      view.light.setAttribute("visibility", "visible");
      const place = `${columns.title} ${columns.labels[i]} · ${rows.title} ${rows.labels[j]}`;
      const shown = formatWithError(view.value(i, j), view.error(i, j));
      view.readout.replaceChildren(element("div", { class: "readout-head" }, place), element("div", {}, shown));
      placeReadout(view.readout, view.node, x.middle(i), y.middle(j));
      if (spoken) announce(`${place}: ${shown}`);
    },
    dim: () => {
      view.light.setAttribute("visibility", "hidden");
      view.readout.hidden = true;
    },
  };
}
