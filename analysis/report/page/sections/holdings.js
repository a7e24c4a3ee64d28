// What the store holds: its models, and on demand the steps of each.

import { element } from "../dom.js";
import { MISSING, counted, formatBytes, formatNumber, joined } from "../format.js";
import { swatch } from "../views.js";

const MOST_SPACED = 40;
const NAMES = { held: "complete", twin: "with the weights of another step", open: "incomplete" };

export function holdingsSection(contents) {
  const nodes = contents.corpora.flatMap((corpus) => {
    const models = contents.models.filter((model) => model.corpus === corpus);
    return [element("h3", { class: "corpus" }, "Corpus ", element("strong", {}, corpus)), ...models.map(modelRow)];
  });
  return { id: "holdings", title: "What the store holds", nodes: [tiles(contents), ...nodes], update: () => {} };
}

function tiles(contents) {
  const { models } = contents;
  const complete = models.reduce((sum, model) => sum + model.steps.complete.filter(Boolean).length, 0);
  const bytes = models.reduce((sum, model) => sum + model.bytes, 0);
  const metrics = Object.values(contents.metrics).filter((about) => !about.group.startsWith("Counts")).length;
  const facts = [
    [new Set(models.map((model) => model.path.split("/")[1])).size, "model"],
    [contents.corpora.length, "corpus", "corpora"],
    [complete, "complete step"],
    [metrics, "metric"],
  ].map(([count, ...nouns]) => tile(String(count), counted(count, ...nouns).slice(String(count).length)));
  return element("ul", { class: "tiles" }, ...facts, tile(formatBytes(bytes), " of activations"));
}

function tile(value, noun) {
  return element("li", {}, element("strong", {}, value), noun);
}

function modelRow(model) {
  const done = model.steps.complete.filter(Boolean).length;
  const facts = [
    [model.type, model.kind].filter(Boolean).join(" · ") || "architecture unknown",
    `${counted(model.layers, "layer")} × ${model.width}`,
    counted(model.tokens, "token"),
    formatBytes(model.bytes),
    `${done} of ${counted(model.steps.step.length, "step")}`,
  ];
  const summary = element(
    "summary",
    {},
    element("span", { class: "model-name" }, swatch(model), element("strong", {}, model.label)),
    ...facts.map((fact) => element("span", { class: "fact" }, fact)),
    strip(model),
  );
  const details = element("details", { class: "model" }, summary);
  const fill = () => details.append(element("p", {}, `Sites: ${joined(model.sites.map((site) => site.replaceAll("_", " ")), 20)}.`), stepTable(model));
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

function stateOf({ complete, duplicates }, i) {
  if (!complete[i]) return "open";
  return duplicates[i].length ? "twin" : "held";
}

// A cell a step, filled where it is complete, marked where its weights are another step's.
function strip(model) {
  const states = model.steps.step.map((_, i) => stateOf(model.steps, i));
  const cells = model.steps.step.map((step, i) => element("span", { class: `step ${states[i]}`, title: `step ${step}: ${NAMES[states[i]]}` }));
  const counts = Object.keys(NAMES).map((key) => [key, states.filter((one) => one === key).length]).filter(([, count]) => count);
  const label = counts.map(([key, count]) => `${counted(count, "step")} ${NAMES[key]}`).join(", ");
  return element("span", { class: cells.length > MOST_SPACED ? "strip dense" : "strip", role: "img", "aria-label": label }, ...cells);
}

function stepTable(model) {
  const { steps } = model;
  const columns = {
    step: (i) => String(steps.step[i]),
    state: (i) => (steps.complete[i] ? "complete" : "incomplete"),
    revision: (i) => steps.revision[i],
    "weights SHA-256": (i) => steps.weights[i],
    dtype: (i) => steps.dtype[i],
    loss: (i) => formatNumber(steps.loss[i]),
    "not finite": (i) => (steps.nonfinite[i] ? formatNumber(steps.nonfinite[i]) : ""),
    size: (i) => formatBytes(steps.bytes[i]),
    ingested: (i) => steps.ingested[i].replace("T", " ").slice(0, 19),
    "same weights as": (i) => joined(steps.duplicates[i].map(String), 6),
  };
  const used = Object.entries(columns).filter(([, cell]) => steps.step.some((_, i) => ![MISSING, ""].includes(cell(i))));
  const head = element("tr", {}, ...used.map(([name]) => element("th", { scope: "col" }, name)));
  const rows = steps.step.map((_, i) => element("tr", {}, ...used.map(([, cell]) => element("td", {}, cell(i)))));
  const caption = `Steps of ${model.label}`;
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}
