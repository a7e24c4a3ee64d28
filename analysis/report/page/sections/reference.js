// What every number means, and what the page leaves out.

import { plainName } from "../contents.js";
import { element } from "../dom.js";

export function referenceSection(contents) {
  const groups = new Map();
  for (const [name, about] of Object.entries(contents.metrics)) {
    if (!groups.has(about.group)) groups.set(about.group, []);
    groups.get(about.group).push([name, about]);
  }
  const nodes = [...groups].map(([group, metrics]) => element(
    "div",
    {},
    element("h3", {}, group),
    ...metrics.map(([name, about]) => element("details", {}, element("summary", {}, about.title), definition(name, about))),
  ));
  return {
    id: "definitions",
    title: "Definitions",
    nodes: [element("h3", {}, "Populations"), populations(contents), ...nodes, element("h3", {}, "About the numbers"), numbers(contents)],
    update: () => {},
  };
}

export function definition(name, about) {
  const facts = [
    ["Name", name],
    ["Unit", about.units],
    ["Range", about.range],
    ["Not defined for", about.undefined],
    ["Reference", about.reference],
    ["Version", about.version],
  ].filter(([, value]) => value);
  return element(
    "div",
    { class: "definition" },
    ...about.definition.split("\n").filter(Boolean).map((text) => element("p", {}, text)),
    element("dl", {}, ...facts.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, String(value))))),
  );
}

function populations(contents) {
  return element("dl", { class: "definition" }, ...contents.populations.map(({ name, description }) => element(
    "div",
    {},
    element("dt", {}, name),
    element("dd", {}, description || plainName(name)),
  )));
}

function numbers(contents) {
  const { longest, steps, wide_steps: wide } = contents.thinning;
  const thinned = [];
  if (steps < longest) thinned.push(`Of up to ${longest} steps a model, ${steps} are in this page, evenly chosen, the first and the last among them.`);
  if (wide < Math.min(steps, longest)) thinned.push(`Spectra, scale curves and heads are in it at ${wide} steps a model.`);
  const texts = [
    "Values have four significant digits, standard errors two, so that the page stays small; counts are exact. The store holds full precision.",
    "Bands are ± 1 standard error, from leaving out groups of whole sequences (or from disjoint subsamples, for neighbours). Means over blocks (layer 0, the embeddings, left out) or heads carry the mean of their errors, since they read the same tokens.",
    thinned.length ? thinned.join(" ") : "Every measured step is in this page.",
  ];
  return element("div", { class: "definition" }, ...texts.map((text) => element("p", {}, text)));
}
