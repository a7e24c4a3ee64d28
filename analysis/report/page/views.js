// From what is chosen to what a figure shows; shared by the sections.

import { depthDim, plainName } from "./contents.js";
import { styleOf } from "./colours.js";
import { drawing } from "./dom.js";
import { capitalised, formatNumber } from "./format.js";
import { marker } from "./linechart.js";
import { sayCurves, sayNothing } from "./sentences.js";

export function axisTitle(quantity) {
  const { title, about } = quantity;
  return about.units ? `${title} [${about.units}]` : title;
}

export function swatch(model) {
  const style = styleOf(model.slot);
  const stroke = drawing("line", { x1: 1, x2: 25, y1: 6, y2: 6, class: "curve", "stroke-dasharray": style.dash || null });
  stroke.style.stroke = style.colour;
  return drawing("svg", { width: 26, height: 12, "aria-hidden": "true" }, stroke, marker(style, 13, 6));
}

export const DEPTH_AXES = [
  { value: "relative depth", label: "relative depth" },
  { value: "depth", label: "layer" },
];

export const LAYER_CHOICES = [
  { value: "first", label: "first layer" },
  { value: "middle", label: "middle layer" },
  { value: "last", label: "last layer" },
];

export function depthTitle(along, models, quantity) {
  if (along === "relative depth") return "relative depth (layer / number of blocks)";
  const cube = models.map((model) => model.cubes.get(quantity.metric)).find(Boolean);
  return cube && depthDim(cube) === "block" ? "block" : "layer (0: embeddings)";
}

// Content of a figure of curves.
export function linesContent({ title, quantity, curves, x, yKind = "linear", place, where, along }) {
  const base = { title: capitalised(title), metric: quantity.key };
  if (!curves.length) return { ...base, kind: "nothing", sentence: sayNothing(quantity.title, [where]) };
  return {
    ...base,
    kind: "lines",
    curves,
    x,
    y: { title: axisTitle(quantity), kind: yKind },
    sentence: sayCurves(curves, { subject: axisTitle(quantity), over: x.title.replace(/ \(.*/, ""), place, along }),
  };
}

export function alongDepth(along) {
  if (along === "relative depth") return (point) => `relative depth ${formatNumber(point.x, 2)}`;
  return (point) => `${"layer" in point.where ? "layer" : "block"} ${point.x}`;
}

// The layers that any of the models has a value for.
export function layerLabels(models, cubeFor) {
  const labels = new Set();
  for (const model of models) {
    const cube = cubeFor(model);
    const depth = cube === null ? null : depthDim(cube);
    if (depth !== null) for (const label of cube.labels[depth]) labels.add(label);
  }
  return [...labels].sort((a, b) => a - b);
}

export function layerOptions(models, cubeFor) {
  const labels = layerLabels(models, cubeFor);
  return labels.length < 2 ? [] : [...LAYER_CHOICES, ...labels.map((label) => ({ value: label, label: `layer ${label}` }))];
}

export function modelOptions(models) {
  return models.map((model) => ({ value: model.index, label: model.label }));
}

export function compareOptions(...hues) {
  return hues.map((hue) => ({ value: hue, label: `${hue === "depth" ? "layer" : plainName(hue)}s` }));
}
