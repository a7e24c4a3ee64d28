// Over training: one metric by step, and every layer of one model by step.

import { cubeOf, depthDim } from "../contents.js";
import { Choice } from "../controls.js";
import { MEAN_OVER_BLOCKS, cutCurves } from "../curves.js";
import { Figure } from "../figure.js";
import { capitalised, formatStep } from "../format.js";
import { sayCells, sayNothing } from "../sentences.js";
import { shownModels } from "../state.js";
import { axisTitle, compareOptions, layerOptions, linesContent, modelOptions } from "../views.js";

export function trainingSection(contents, state) {
  const trained = contents.models.filter((model) => [...model.cubes.values()].some(hasSteps));
  if (!trained.length) return null;
  const curves = stepFigure(contents, state);
  const map = mapFigure(contents, state);
  const update = () => {
    curves.update();
    map.update();
  };
  return { id: "training", title: "Over training", nodes: [curves.node, map.node], update };
}

function hasSteps(cube) {
  return cube.has("step") && cube.labels.step.length > 1;
}

function trainedModels(contents, state) {
  return shownModels(contents, state).filter((model) => {
    const cube = model.cubes.get(state.values.quantity.metric);
    return cube && hasSteps(cube);
  });
}

function stepFigure(contents, state) {
  const update = () => {
    const { quantity, population } = state.values;
    const models = trainedModels(contents, state);
    one.offer(modelOptions(models));
    one.show(compare.value !== "model");
    const layers = layerOptions(models, (model) => cubeOf(model, quantity));
    depth.offer(layers.length ? [{ value: MEAN_OVER_BLOCKS, label: "mean over blocks" }, ...layers] : []);
    depth.show(compare.value !== "depth");
    const chosen = compare.value === "model" ? models : models.filter((model) => String(model.index) === one.value);
    const curves = cutCurves(chosen, quantity, { along: "step", hue: compare.value, population, depth: depth.value || MEAN_OVER_BLOCKS });
    figure.show(linesContent({
      title: `${quantity.title} over training`,
      quantity,
      curves,
      x: { title: "training step", kind: "step" },
      place: placeOf(chosen, compare.value, population, depth),
      where: `at several steps in the population ${population}`,
      along: (point) => `step ${point.x}`,
    }));
  };
  const compare = new Choice("Compare", update);
  const depth = new Choice("Layer", update);
  const one = new Choice("Model", update);
  compare.offer(compareOptions("model", "depth", "population"));
  const figure = new Figure("", { controls: [compare.node, depth.node, one.node] });
  return { node: figure.node, update };
}

function placeOf(models, hue, population, depth) {
  const parts = [];
  if (hue !== "model" && models.length) parts.push(models[0].label);
  if (hue !== "population") parts.push(`population ${population}`);
  if (hue !== "depth" && depth.value) parts.push(depth.select.selectedOptions[0].textContent);
  return parts.join(", ");
}

function mapFigure(contents, state) {
  const update = () => {
    const models = trainedModels(contents, state);
    one.offer(modelOptions(models));
    const model = models.find((candidate) => String(candidate.index) === one.value);
    figure.show(mapContent(model, state.values));
  };
  const one = new Choice("Model", update);
  const figure = new Figure("", { controls: [one.node] });
  return { node: figure.node, update };
}

function mapContent(model, { quantity, population }) {
  const base = { title: `${capitalised(quantity.title)}, layer by step`, metric: quantity.key };
  const nothing = { ...base, kind: "nothing", sentence: sayNothing(quantity.title, [`by layer and step in the population ${population}`]) };
  const cube = model ? populationOf(cubeOf(model, quantity), population) : null;
  const depth = cube === null ? null : depthDim(cube);
  if (depth === null || cube.isEmpty()) return nothing;
  const steps = cube.filled("step");
  const layers = cube.filled(depth);
  const position = (i, j) => ({ step: steps[i], [depth]: layers[j] });
  const [columns, rows] = [steps.map((place) => cube.labels.step[place]), layers.map((place) => cube.labels[depth][place])];
  const points = columns.flatMap((step, i) => rows.map((layer, j) => ({
    y: cube.at(position(i, j)),
    error: cube.error(position(i, j)),
    sample: cube.sample(position(i, j)),
    where: { model: model.label, population, step, [depth]: layer },
  })));
  return {
    ...base,
    kind: "cells",
    title: `${base.title}: ${model.label}`,
    columns: { title: "step", labels: columns, format: formatStep },
    rows: { title: depth, labels: rows, format: String },
    value: (i, j) => cube.at(position(i, j)),
    error: (i, j) => cube.error(position(i, j)),
    points,
    sentence: sayCells(points, { rows: depth, columns: "step", place: `${axisTitle(quantity)} of ${model.label}, population ${population}` }),
  };
}

function populationOf(cube, population) {
  if (cube === null || !cube.has("population")) return cube;
  const place = cube.labels.population.indexOf(population);
  return place < 0 ? null : cube.select("population", place);
}
