// Of which sample of tokens values are: other tokens, other values.

import { joined } from "./format.js";

const SEVERAL = { several: true };
const TELLING = ["model", "population", "step", "layer", "block"];
const known = new Map();

// The one object that stands for a sample, so that equal ones are the same.
export function sampleOf(settings) {
  const key = JSON.stringify(settings);
  if (!known.has(key)) known.set(key, settings);
  return known.get(key);
}

// The sample that all values are of which others are made from; null where they are of none.
export function commonSample(samples) {
  const distinct = new Set(samples.filter(Boolean));
  return distinct.size > 1 ? SEVERAL : distinct.values().next().value ?? null;
}

export function tellSample(sample) {
  if (sample === SEVERAL) return "several samples";
  const { sample: size, seed, exclude_own_sequence: apart } = sample;
  const told = [
    size === undefined ? "" : `sample of ${size.toLocaleString("en-GB")} tokens`,
    seed === undefined ? "" : `seed ${seed}`,
    apart ? "neighbours in other sequences" : "",
  ];
  return told.filter(Boolean).join(", ");
}

export function sampleColumns(sample) {
  return sample === SEVERAL ? { sample: "several" } : sample ?? {};
}

export function areSeveral(points) {
  return new Set(points.map(({ sample }) => sample).filter(Boolean)).size > 1 || points.some(({ sample }) => sample === SEVERAL);
}

// Which samples the values of a figure are of, nothing where they are of none.
export function saySamples(points) {
  const groups = new Map();
  for (const point of points) {
    if (!point.sample || Number.isNaN(point.y)) continue;
    if (!groups.has(point.sample)) groups.set(point.sample, []);
    groups.get(point.sample).push(point);
  }
  if (!groups.size) return "";
  const [first] = groups.keys();
  if (groups.size === 1 && first !== SEVERAL) return `Values of a ${tellSample(first)}.`;
  const places = tellingLabels([...groups.values()]);
  const told = [...groups.keys()].map((sample, i) => `${tellSample(sample)}${places === null ? "" : ` (${places[i]})`}`);
  const what = groups.size === 1 ? "Means over values of several samples" : `Values of several samples: ${told.join("; ")}`;
  return `${what}. Part of what differs comes from that alone.`;
}

// The labels that tell groups of points apart, one text a group; null where none do.
function tellingLabels(groups) {
  for (const dim of TELLING) {
    const labels = groups.map((points) => new Set(points.map(({ where }) => where[dim])));
    const all = new Set(labels.flatMap((own) => [...own]));
    if (labels.length > 1 && all.size === labels.reduce((sum, own) => sum + own.size, 0)) {
      return labels.map((own) => `${dim === "model" ? "" : `${dim} `}${joined([...own].map(String), 3)}`);
    }
  }
  return null;
}
