// Cutting cubes into curves: what runs along the figure, what tells the curves apart.

import { cubeOf, depthDim, relativeDepth } from "./contents.js";

const MOST_RANKED = 14;

export const MEAN_OVER_BLOCKS = "mean";

// Curves of a quantity.
//   along      "relative depth", "depth", "step", or a dimension of its own such as "component"
//   hue        "model", "step", "depth" or "population"
//   population name; step: the latest to show, null for the last; depth: see depthPlace
export function cutCurves(models, quantity, view) {
  const curves = [];
  for (const model of models) {
    const cube = view.cubeOf ? view.cubeOf(model) : cubeOf(model, quantity);
    if (cube !== null) curves.push(...modelCurves(model, cube, view));
  }
  const ranked = view.hue === "step" || view.hue === "depth";
  return curves.map((curve, place) => ({
    ...curve,
    rank: ranked ? (curves.length > 1 ? place / (curves.length - 1) : 1) : null,
    slot: view.hue === "model" ? curve.slot : place,
  }));
}

function modelCurves(model, whole, view) {
  const depth = depthDim(whole);
  const alongDim = view.along === "relative depth" || view.along === "depth" ? depth : view.along;
  const hueDim = view.hue === "depth" ? depth : view.hue === "model" ? null : view.hue;
  if (!whole.has(alongDim) || (hueDim !== null && !whole.has(hueDim))) return [];
  const kept = [alongDim, hueDim];
  const { cube, where } = narrowed(model, whole, depth, kept, view);
  if (cube === null) return [];
  const x = (label) => (view.along === "relative depth" ? relativeDepth(model, label) : label);
  const places = hueDim === null ? [null] : chosenPlaces(cube, hueDim, view.hue);
  return places.map((place) => {
    const part = place === null ? cube : cube.select(hueDim, place);
    const own = place === null ? {} : { [hueDim]: cube.labels[hueDim][place] };
    const points = part.labels[alongDim].map((label, i) => ({
      x: x(label),
      y: part.at({ [alongDim]: i }),
      error: part.error({ [alongDim]: i }),
      sample: part.sample({ [alongDim]: i }),
      where: { model: model.label, ...where, ...own, [alongDim]: label },
    }));
    const name = place === null ? model.label : hueLabel(view.hue, depth, own[hueDim]);
    return { name, slot: model.slot, points: points.filter((point) => !Number.isNaN(point.y)) };
  }).filter((curve) => curve.points.length);
}

function hueLabel(hue, depth, label) {
  if (hue === "depth") return `${depth} ${label}`;
  return hue === "step" ? `step ${label}` : String(label);
}

// Fix every dimension that neither runs along the figure nor tells curves apart.
function narrowed(model, whole, depth, kept, view) {
  let cube = whole;
  const where = {};
  const fix = (dim, place) => {
    where[dim] = cube.labels[dim][place];
    cube = cube.select(dim, place);
  };
  if (cube.has("population") && !kept.includes("population")) {
    const place = cube.labels.population.indexOf(view.population);
    if (place < 0) return { cube: null };
    fix("population", place);
  }
  if (cube.has("step") && !kept.includes("step")) {
    const place = stepPlace(cube, view.step ?? null);
    if (place === null) return { cube: null };
    fix("step", place);
  }
  if (cube.has(depth) && !kept.includes(depth)) {
    if (view.depth === MEAN_OVER_BLOCKS) {
      where[depth] = "mean over blocks";
      // Layer 0 is the embeddings, which have no more distinct rows than the vocabulary has tokens.
      const layers = cube.labels[depth];
      cube = cube.mean(depth, depth === "layer" && layers[0] === 0 && layers.length > 1 ? 1 : 0);
    } else {
      const place = depthPlace(cube.labels[depth], view.depth);
      if (place < 0) return { cube: null };
      fix(depth, place);
    }
  }
  return { cube: cube.isEmpty() ? null : cube, where };
}

// The latest measured step that is not after the one asked for, the first one before there is any.
export function stepPlace(cube, wanted) {
  const filled = cube.filled("step");
  if (!filled.length) return null;
  if (wanted === null) return filled.at(-1);
  const before = filled.filter((place) => cube.labels.step[place] <= wanted);
  return before.length ? before.at(-1) : filled[0];
}

// "first", "middle", "last", or the number of a layer; -1 where there is no such layer.
export function depthPlace(labels, wanted) {
  const named = { first: 0, middle: Math.floor(labels.length / 2), last: labels.length - 1 };
  return named[wanted] ?? labels.indexOf(Number(wanted));
}

function chosenPlaces(cube, dim, hue) {
  const filled = cube.filled(dim);
  if (hue === "population" || filled.length <= MOST_RANKED) return filled;
  const last = filled.length - 1;
  return Array.from({ length: MOST_RANKED }, (_, i) => filled[Math.round((i * last) / (MOST_RANKED - 1))]);
}
