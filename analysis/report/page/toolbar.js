// What holds for the whole page: corpus, models, metric, population, step.

import { CheckMenu, Choice, Slider } from "./controls.js";
import { element, replace } from "./dom.js";
import { counted, joined } from "./format.js";
import { definition } from "./sections/reference.js";
import { shownModels, shownSteps } from "./state.js";
import { swatch } from "./views.js";

export class Toolbar {
  constructor(contents, state) {
    this.contents = contents;
    this.state = state;
    this.corpus = new Choice("Corpus", (corpus) => state.set({ corpus }));
    this.models = new CheckMenu("Models", (chosen) => this.choose(chosen));
    this.metric = new Choice("Metric", (key) => state.set({ quantity: contents.quantities.get(key) }));
    this.population = new Choice("Population", (population) => state.set({ population }));
    this.step = new Slider("Step", (place) => this.move(place));
    this.summary = element("span", { class: "summary" });
    this.about = element("details", { class: "about" }, element("summary", {}, "What is this?"), element("div", {}));
    const choices = [this.metric, this.population, this.models, this.corpus, this.step].map((choice) => choice.node);
    this.panel = element("div", { class: "choices", id: "choices" }, ...choices);
    this.opener = element(
      "button",
      { type: "button", class: "opener", "aria-expanded": "false", "aria-controls": "choices", onclick: () => this.open() },
      this.summary,
      element("span", { class: "change" }, "change"),
    );
    this.node = element("div", { class: "toolbar", role: "group", "aria-label": "What the figures show" }, this.opener, this.panel, this.about);
  }

  // Models of other corpora keep their state.
  choose(chosen) {
    const others = this.contents.models.filter((model) => model.corpus !== this.state.values.corpus && this.state.values.chosen.has(model.index));
    this.state.set({ chosen: new Set([...chosen, ...others.map((model) => model.index)]) });
  }

  move(place) {
    const steps = shownSteps(this.contents, this.state);
    this.state.set({ step: place === steps.length - 1 ? null : steps[place] });
  }

  open() {
    const open = this.node.classList.toggle("open");
    this.opener.setAttribute("aria-expanded", String(open));
  }

  update() {
    const { contents, state } = this;
    if (state.values.quantity === null) return;
    const { corpus, chosen, quantity, population, step } = state.values;
    const models = contents.models.filter((model) => model.corpus === corpus);
    const shown = shownModels(contents, state);
    this.corpus.offer(contents.corpora.map((name) => ({ value: name, label: name })), corpus);
    const entries = models.map((model) => ({ value: model.index, label: model.label, swatch: swatch(model) }));
    this.models.offer(entries, chosen, shown.length === models.length ? `all ${models.length}` : `${shown.length} of ${models.length}`);
    this.metric.offer([...contents.quantities.values()].map(({ key, title, about }) => ({ value: key, label: title, group: about.group })), quantity.key);
    this.population.offer(contents.populations.map(({ name }) => ({ value: name, label: name })), population);
    const steps = shownSteps(contents, state);
    const place = step === null ? steps.length - 1 : Math.max(0, steps.filter((one) => one <= step).length - 1);
    this.step.offer(Math.max(1, steps.length), place, step === null ? "last of each model" : String(steps[place]));
    this.summary.textContent = joined([quantity.title, population, step === null ? "last step" : `step ${step}`, counted(shown.length, "model")].filter(Boolean), 9).replace(" and ", ", ");
    const described = contents.populations.find(({ name }) => name === population)?.description;
    this.about.firstElementChild.textContent = `What is ${quantity.title}${described ? `, and the population “${population}”` : ""}?`;
    const note = described ? element("p", {}, `Population “${population}”: ${described}.`) : null;
    replace(this.about.lastElementChild, definition(quantity.metric, quantity.about), note);
  }
}
