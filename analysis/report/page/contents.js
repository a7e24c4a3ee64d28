// What the page was filled with, as models with cubes of numbers.

import { Cube } from "./cube.js";
import { unpackNumbers } from "./numbers.js";
import { sampleOf } from "./samples.js";

export const HEADS = ["head", "key_value_head"];
const DEPTHS = ["layer", "block"];
const KEYS = ["step", ...DEPTHS, "population", ...HEADS];
const MOST_QUANTITIES = 8;

export async function readContents() {
  const contents = JSON.parse(document.getElementById("document").textContent);
  const numbers = await unpackNumbers(document.getElementById("numbers").textContent);
  contents.models.forEach((model, index) => {
    model.index = index;
    model.cubes = cubesOf(contents.series[index], contents.axes, numbers);
  });
  contents.corpora = [...new Set(contents.models.map((model) => model.corpus))];
  contents.quantities = quantitiesOf(contents);
  return contents;
}

function cubesOf(series, axes, numbers) {
  const cubes = new Map();
  for (const [name, variable] of Object.entries(series)) {
    const dims = variable.dims.map(([dim]) => dim);
    const labels = Object.fromEntries(variable.dims.map(([dim, axis]) => [dim, axes[axis]]));
    const size = dims.reduce((product, dim) => product * labels[dim].length, 1);
    const slice = (start) => (start === null ? null : numbers.subarray(start, start + size));
    const samples = variable.samples
      ? { known: variable.samples.settings.map(sampleOf), marks: slice(variable.samples.at) }
      : null;
    cubes.set(name, new Cube(dims, labels, slice(variable.at), slice(variable.errors), samples));
  }
  return cubes;
}

// What can be chosen as one number a layer: a metric, or one entry of a short vector.
function quantitiesOf(contents) {
  const quantities = new Map();
  for (const [metric, about] of Object.entries(contents.metrics)) {
    for (const model of contents.models) {
      const cube = model.cubes.get(metric);
      for (const fixed of cube ? fixedLabels(cube) : []) {
        const suffix = Object.entries(fixed).map(([dim, label]) => `${plainName(dim)} ${label}`);
        const key = [metric, ...Object.values(fixed)].join(" ");
        const title = [about.title, ...suffix].join(", ");
        if (!quantities.has(key)) quantities.set(key, { key, metric, fixed, title, about });
      }
    }
  }
  return quantities;
}

function fixedLabels(cube) {
  const others = vectorDims(cube);
  const count = others.reduce((product, dim) => product * cube.labels[dim].length, 1);
  if (count > MOST_QUANTITIES) return [];
  return others.reduce(
    (found, dim) => found.flatMap((one) => cube.labels[dim].map((label) => ({ ...one, [dim]: label }))),
    [{}],
  );
}

export function vectorDims(cube) {
  return cube.dims.filter((dim) => !KEYS.includes(dim));
}

export function headDim(cube) {
  return cube.dims.find((dim) => HEADS.includes(dim)) ?? null;
}

export function depthDim(cube) {
  return cube.dims.find((dim) => DEPTHS.includes(dim)) ?? null;
}

export function plainName(dim) {
  return dim.replaceAll("_", " ");
}

export function relativeDepth(model, label) {
  const [first, each] = model.depth;
  return first + each * label;
}

// The cube of a quantity (step, depth, population), heads averaged; null where a model has none.
export function cubeOf(model, quantity) {
  let cube = model.cubes.get(quantity.metric);
  if (!cube) return null;
  for (const [dim, label] of Object.entries(quantity.fixed)) {
    const index = cube.has(dim) ? cube.labels[dim].indexOf(label) : -1;
    if (index < 0) return null;
    cube = cube.select(dim, index);
  }
  const head = headDim(cube);
  return head === null ? cube : cube.mean(head);
}
