// Fill the page.

import { readContents } from "./contents.js";
import { element, replace } from "./dom.js";
import { depthSection } from "./sections/depth.js";
import { findingsSection } from "./sections/findings.js";
import { headSection } from "./sections/heads.js";
import { holdingsSection } from "./sections/holdings.js";
import { referenceSection } from "./sections/reference.js";
import { stackSection } from "./sections/stacks.js";
import { trainingSection } from "./sections/training.js";
import { vectorSections } from "./sections/vectors.js";
import { State } from "./state.js";
import { followTheme, themeChoice } from "./theme.js";
import { Toolbar } from "./toolbar.js";

// Whether anything is known of a population: of too few rows nothing is.
function tells(cube, population) {
  if (!cube?.has("population")) return cube !== undefined;
  const place = cube.labels.population.indexOf(population);
  return place >= 0 && cube.select("population", place).values.some(Number.isFinite);
}

function firstState(contents) {
  const held = (name) => contents.models.filter((model) => model.corpus === name);
  const [quantity = null] = contents.quantities.values();
  const names = contents.populations.map(({ name }) => name);
  const population = names.includes("content") ? "content" : (names[0] ?? "all");
  const corpus = contents.corpora.find((name) => held(name).some(({ cubes }) => tells(cubes.get(quantity?.metric), population)))
    ?? contents.corpora[0];
  for (const name of contents.corpora) {
    held(name).forEach((model, slot) => {
      model.slot = slot;
    });
  }
  return new State({
    corpus,
    chosen: new Set(contents.models.map((model) => model.index)),
    quantity,
    population,
    step: null,
  });
}

function sectionsOf(contents, state) {
  const first = [holdingsSection(contents), findingsSection(contents)];
  if (state.values.quantity === null) return first;
  return [
    ...first,
    depthSection(contents, state),
    trainingSection(contents, state),
    stackSection(contents, state),
    ...vectorSections(contents, state),
    headSection(contents, state),
    referenceSection(contents),
  ].filter(Boolean);
}

function sectionNode({ id, title, nodes }) {
  const heading = `${id}-title`;
  return element("section", { id, "aria-labelledby": heading }, element("h2", { id: heading }, title), ...nodes);
}

async function start() {
  const contents = await readContents();
  const state = firstState(contents);
  const toolbar = new Toolbar(contents, state);
  const sections = sectionsOf(contents, state);
  const links = sections.map(({ id, title }) => element("li", {}, element("a", { href: `#${id}` }, title)));
  replace(document.querySelector("nav"), element("ul", {}, ...links));
  const nodes = sections.map(sectionNode);
  // The choices stand above the first section that they rule.
  if (state.values.quantity !== null) nodes.splice(2, 0, toolbar.node);
  replace(document.querySelector("main"), ...nodes);
  document.getElementById("store").textContent = contents.store;
  document.getElementById("snapshot").textContent = contents.snapshot;
  const update = () => {
    toolbar.update();
    for (const section of sections) section.update();
  };
  state.onChange(update);
  followTheme(update);
  replace(document.getElementById("theme"), themeChoice());
  update();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  const text = `This page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`;
  replace(document.querySelector("main"), element("p", { class: "failure", role: "alert" }, text));
  throw error;
});
