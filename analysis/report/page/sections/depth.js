// Profiles by layer: every metric at a glance, and one of them large.

import { depthDim } from "../contents.js";
import { Choice } from "../controls.js";
import { cutCurves } from "../curves.js";
import { element, replace } from "../dom.js";
import { Figure } from "../figure.js";
import { styleOf } from "../colours.js";
import { sparkline } from "../sparkline.js";
import { shownModels } from "../state.js";
import { DEPTH_AXES, alongDepth, compareOptions, depthTitle, linesContent, modelOptions } from "../views.js";

export function depthSection(contents, state) {
  const withDepth = [...contents.quantities.values()].filter((quantity) => hasDepth(contents, quantity));
  if (!withDepth.length) return null;
  const update = () => {
    profile.update();
    glance.update();
  };
  const profile = profileFigure(contents, state);
  const glance = glanceGrid(contents, state, withDepth);
  return { id: "depth", title: "By layer", nodes: [profile.node, glance.node], update };
}

function hasDepth(contents, quantity) {
  return contents.models.some((model) => {
    const cube = model.cubes.get(quantity.metric);
    return cube && depthDim(cube) !== null;
  });
}

function profileFigure(contents, state) {
  const update = () => {
    const { quantity, population, step } = state.values;
    const models = shownModels(contents, state);
    one.offer(modelOptions(models));
    one.show(compare.value !== "model");
    const chosen = compare.value === "model" ? models : models.filter((model) => String(model.index) === one.value);
    const view = { along: axis.value, hue: compare.value, population, step };
    const curves = cutCurves(chosen, quantity, view);
    figure.show(linesContent({
      title: `${quantity.title} by ${axis.value === "depth" ? "layer" : axis.value}`,
      quantity,
      curves,
      x: { title: depthTitle(axis.value, chosen, quantity), kind: "linear" },
      place: placeOf(chosen, compare.value, population, step),
      where: `by layer in the population ${population}`,
      along: alongDepth(axis.value),
    }));
  };
  const compare = new Choice("Compare", update);
  const axis = new Choice("Horizontal axis", update);
  const one = new Choice("Model", update);
  compare.offer(compareOptions("model", "step", "population"));
  axis.offer(DEPTH_AXES);
  const figure = new Figure("", { controls: [compare.node, axis.node, one.node] });
  return { node: figure.node, update };
}

function placeOf(models, hue, population, step) {
  const parts = [];
  if (hue !== "model" && models.length) parts.push(models[0].label);
  if (hue !== "population") parts.push(`population ${population}`);
  if (hue !== "step") parts.push(step === null ? "last step" : `step ${step}`);
  return parts.join(", ");
}

function glanceGrid(contents, state, quantities) {
  const cards = quantities.filter(({ about, fixed }) => !about.group.startsWith("Counts") && !Object.keys(fixed).length)
    .map((quantity) => metricCard(quantity, state));
  const update = () => {
    const models = shownModels(contents, state).filter((model) => model.cubes.size);
    for (const card of cards) card.update(models);
  };
  const groups = [...new Set(cards.map(({ quantity }) => quantity.about.group))].flatMap((group) => [
    element("h4", {}, group),
    element("div", { class: "cards" }, ...cards.filter(({ quantity }) => quantity.about.group === group).map((card) => card.node)),
  ]);
  const heading = element("h3", {}, "Every metric at a glance");
  const hint = element("p", { class: "hint" }, "By relative depth, each on its own scale. Pick one to see it large.");
  return { node: element("div", { class: "glance" }, heading, hint, ...groups), update };
}

function metricCard(quantity, state) {
  const place = element("span", { class: "spark" });
  const pick = () => {
    state.set({ quantity });
    document.getElementById("depth").scrollIntoView();
  };
  const node = element("button", { type: "button", class: "card", onclick: pick }, element("span", { class: "card-title" }, quantity.title), place);
  const update = (models) => {
    const { population, step } = state.values;
    const curves = cutCurves(models, quantity, { along: "relative depth", hue: "model", population, step });
    node.setAttribute("aria-pressed", String(state.values.quantity === quantity));
    replace(place, sparkline(curves.map((curve) => ({ ...curve, style: styleOf(curve.slot) }))));
  };
  return { quantity, node, update };
}
