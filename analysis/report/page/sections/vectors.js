// Metrics that are a vector at each layer: eigenvalue spectra, scale curves of the dimension.

import { headDim, plainName, vectorDims } from "../contents.js";
import { Choice } from "../controls.js";
import { cutCurves } from "../curves.js";
import { Figure } from "../figure.js";
import { capitalised, formatNumber } from "../format.js";
import { shownModels } from "../state.js";
import { compareOptions, layerOptions, linesContent, modelOptions } from "../views.js";

const TITLES = {
  component: "Eigenvalue spectra",
  scale: "Intrinsic dimension by scale",
  decimation: "Intrinsic dimension by decimation",
};

export function vectorSections(contents, state) {
  const byDim = new Map();
  for (const metric of Object.keys(contents.metrics)) {
    for (const model of contents.models) {
      const cube = model.cubes.get(metric);
      const dims = cube ? vectorDims(cube) : [];
      if (dims.length !== 1 || cube.labels[dims[0]].length < 3) continue;
      if (!byDim.has(dims[0])) byDim.set(dims[0], new Set());
      byDim.get(dims[0]).add(metric);
    }
  }
  return [...byDim].map(([dim, metrics]) => vectorSection(contents, state, dim, [...metrics]));
}

function vectorSection(contents, state, dim, metrics) {
  const update = () => {
    const { population, step } = state.values;
    const name = metric.value;
    const models = shownModels(contents, state).filter((model) => model.cubes.has(name));
    one.offer(modelOptions(models));
    one.show(compare.value !== "model");
    const cubeFor = (model) => wholeCube(model, name, relative.value === "first" ? dim : null);
    layer.offer(layerOptions(models, cubeFor), layer.value || "middle");
    layer.show(compare.value !== "depth");
    const chosen = compare.value === "model" ? models : models.filter((model) => String(model.index) === one.value);
    const view = { along: dim, hue: compare.value, population, step, depth: layer.value, cubeOf: cubeFor };
    const about = contents.metrics[name];
    const quantity = { key: name, metric: name, title: about.title, about };
    figure.show(contentOf({ dim, quantity: relative.value === "first" ? relativeTo(quantity, dim) : quantity, view, models: chosen, compare, layer }));
  };
  const metric = new Choice("Metric", update);
  const compare = new Choice("Compare", update);
  const layer = new Choice("Layer", update);
  const one = new Choice("Model", update);
  const relative = new Choice("Values", update);
  metric.offer(metrics.map((name) => ({ value: name, label: contents.metrics[name].title })));
  compare.offer(compareOptions("depth", "model", "step", "population"));
  relative.offer(dim === "component" ? [{ value: "own", label: "as measured" }, { value: "first", label: "divided by the first" }] : []);
  const title = TITLES[dim] ?? `By ${plainName(dim)}`;
  const hint = dim === "component" ? "Components are thinned along the logarithmic axis." : "";
  const figure = new Figure(title, { controls: [metric.node, compare.node, one.node, layer.node, relative.node], hint });
  return { id: `by-${dim.replaceAll("_", "-")}`, title, nodes: [figure.node], update };
}

function relativeTo(quantity, dim) {
  return { ...quantity, title: `${quantity.title}, divided by that of the first ${plainName(dim)}`, about: { ...quantity.about, units: "" } };
}

function contentOf({ dim, quantity, view, models, compare, layer }) {
  const curves = cutCurves(models, quantity, view);
  const points = curves.flatMap((curve) => curve.points);
  const spread = (of) => {
    const values = points.map(of);
    return Math.min(...values) > 0 && Math.max(...values) >= 16 * Math.min(...values);
  };
  const place = [
    compare.value === "model" ? "" : models[0]?.label ?? "",
    compare.value === "population" ? "" : `population ${view.population}`,
    compare.value === "depth" || !layer.value ? "" : layer.select.selectedOptions[0].textContent,
  ].filter(Boolean).join(", ");
  const positive = points.filter((point) => point.y > 0).length > 0.8 * points.length;
  return linesContent({
    title: `${TITLES[dim] ?? capitalised(plainName(dim))}: ${quantity.title}`,
    quantity,
    curves,
    x: { title: plainName(dim), kind: spread((point) => point.x) ? "log" : "linear" },
    yKind: dim === "component" && positive ? "log" : "linear",
    place,
    where: `in the population ${view.population}`,
    along: (point) => `${plainName(dim)} ${formatNumber(point.x)}`,
  });
}

function wholeCube(model, name, dividedAlong) {
  let cube = model.cubes.get(name);
  if (!cube) return null;
  const head = headDim(cube);
  if (head !== null) cube = cube.mean(head);
  return dividedAlong === null ? cube : cube.dividedByFirst(dividedAlong);
}
