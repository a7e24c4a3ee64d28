// Queries, keys and attention: one number a head, as a map of blocks and heads.

import { depthDim, headDim, plainName, vectorDims } from "../contents.js";
import { Choice } from "../controls.js";
import { stepPlace } from "../curves.js";
import { Figure } from "../figure.js";
import { capitalised } from "../format.js";
import { sayCells, sayNothing } from "../sentences.js";
import { shownModels } from "../state.js";
import { axisTitle, modelOptions } from "../views.js";

export function headSection(contents, state) {
  const metrics = Object.keys(contents.metrics).filter((name) => contents.models.some((model) => byHead(model, name)));
  if (!metrics.length) return null;
  const update = () => {
    const models = shownModels(contents, state).filter((model) => byHead(model, metric.value));
    one.offer(modelOptions(models));
    const model = models.find((candidate) => String(candidate.index) === one.value);
    figure.show(content(model, metric.value, contents.metrics[metric.value], state.values));
  };
  const metric = new Choice("Metric", update);
  const one = new Choice("Model", update);
  metric.offer(metrics.map((name) => ({ value: name, label: contents.metrics[name].title })));
  const hint = "Profiles by layer and over training show the mean over heads.";
  const figure = new Figure("", { controls: [metric.node, one.node], hint });
  return { id: "heads", title: "Queries, keys and attention by head", nodes: [figure.node], update };
}

function byHead(model, name) {
  const cube = model.cubes.get(name);
  return Boolean(cube) && headDim(cube) !== null && depthDim(cube) !== null && !vectorDims(cube).length;
}

function content(model, name, about, { population, step }) {
  const base = { title: `${capitalised(about.title)} by head`, metric: name };
  const part = model ? narrowed(model.cubes.get(name), population, step) : null;
  if (part === null) return { ...base, kind: "nothing", sentence: sayNothing(about.title, [`by head in the population ${population}`]) };
  const { cube, where } = part;
  const [depth, head] = [depthDim(cube), headDim(cube)];
  const position = (i, j) => ({ [head]: i, [depth]: j });
  const points = cube.labels[head].flatMap((label, i) => cube.labels[depth].map((block, j) => ({
    y: cube.at(position(i, j)),
    error: cube.error(position(i, j)),
    sample: cube.sample(position(i, j)),
    where: { model: model.label, ...where, [plainName(head)]: label, [depth]: block },
  })));
  const place = [`${axisTitle({ title: about.title, about })} of ${model.label}`, ...Object.entries(where).map(([dim, label]) => `${dim} ${label}`)].join(", ");
  return {
    ...base,
    kind: "cells",
    title: `${base.title}: ${model.label}`,
    columns: { title: plainName(head), labels: cube.labels[head], format: String },
    rows: { title: depth, labels: cube.labels[depth], format: String },
    value: (i, j) => cube.at(position(i, j)),
    error: (i, j) => cube.error(position(i, j)),
    points,
    sentence: sayCells(points, { rows: depth, columns: plainName(head), place }),
  };
}

function narrowed(whole, population, step) {
  let cube = whole;
  const where = {};
  if (cube.has("population")) {
    const place = cube.labels.population.indexOf(population);
    if (place < 0) return null;
    where.population = population;
    cube = cube.select("population", place);
  }
  if (cube.has("step")) {
    const place = stepPlace(cube, step);
    if (place === null) return null;
    where.step = cube.labels.step[place];
    cube = cube.select("step", place);
  }
  return cube.isEmpty() ? null : { cube, where };
}
