// A figure: title, choices, a sentence that says what is seen, drawing, legend, its numbers.

import { rankStyle, styleOf } from "./colours.js";
import { drawing, element, freshId, replace } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { lineChart, marker } from "./linechart.js";
import { areSeveral, saySamples } from "./samples.js";
import { csvText, download, jsonText, recordTable, recordsOf } from "./table.js";

const MOST_IN_RAMP = 8;

export class Figure {
  constructor(title, { controls = [], hint = "" } = {}) {
    this.heading = element("h3", { id: freshId("figure") }, title);
    this.sentence = element("p", { class: "sentence" });
    this.samples = element("p", { class: "samples", hidden: true });
    this.place = element("div", { class: "place" });
    this.legend = element("ul", { class: "legend" });
    this.numbers = element("div", { class: "numbers", hidden: true });
    this.node = element(
      "figure",
      { "aria-labelledby": this.heading.id },
      this.heading,
      controls.length ? element("div", { class: "controls" }, ...controls) : null,
      this.place,
      this.legend,
      element("figcaption", {}, this.sentence, this.samples, hint ? element("p", { class: "hint" }, hint) : null),
      this.actions(),
      this.numbers,
    );
    this.width = 0;
    new ResizeObserver(() => this.resized()).observe(this.place);
  }

  actions() {
    this.toggle = element("button", { type: "button", "aria-expanded": "false", onclick: () => this.toggleTable() }, "Table");
    const save = (kind, text, type) => element(
      "button",
      { type: "button", onclick: () => download(text(this.records()), `${this.fileName()}.${kind}`, type) },
      `Save ${kind.toUpperCase()}`,
    );
    return element("div", { class: "actions" }, this.toggle, save("csv", csvText, "text/csv"), save("json", jsonText, "application/json"));
  }

  // Show curves ({ kind: "lines", curves, x, y }), cells ({ kind: "cells", columns, rows, value,
  // error, points }), or a sentence on why there is nothing ({ kind: "nothing" }).
  // All have a title, a metric and a sentence.
  show(content) {
    this.content = content;
    this.heading.textContent = content.title;
    this.sentence.textContent = content.sentence;
    this.samples.textContent = saySamples(this.points());
    this.samples.hidden = !this.samples.textContent;
    this.samples.classList.toggle("caution", areSeveral(this.points()));
    if (content.kind === "lines") {
      for (const curve of content.curves) {
        curve.style ??= curve.rank === null ? styleOf(curve.slot) : rankStyle(curve.rank, curve.slot);
      }
    }
    replace(this.legend, ...legendItems(content));
    this.node.classList.toggle("empty", content.kind === "nothing");
    this.draw();
    if (!this.numbers.hidden) this.fillTable();
  }

  draw() {
    if (this.content.kind === "nothing" || !this.width) return replace(this.place);
    const chart = this.content.kind === "lines" ? lineChart : heatMap;
    const label = `${this.content.title}. ${this.content.sentence} Arrow keys read out values.`;
    return replace(this.place, chart({ ...this.content, label, width: this.width }));
  }

  resized() {
    const width = Math.floor(this.place.clientWidth);
    if (width === this.width || !this.content) return;
    this.width = width;
    this.draw();
  }

  points() {
    if (this.content.kind === "nothing") return [];
    return this.content.points ?? this.content.curves.flatMap((curve) => curve.points);
  }

  records() {
    return recordsOf(this.points(), this.content.metric);
  }

  fileName() {
    return this.content.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  }

  toggleTable() {
    this.numbers.hidden = !this.numbers.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.numbers.hidden));
    if (!this.numbers.hidden) this.fillTable();
  }

  fillTable() {
    replace(this.numbers, recordTable(this.records(), this.content.title));
  }
}

function legendItems(content) {
  if (content.kind !== "lines") return [];
  const named = content.curves.filter((curve) => !curve.unnamed);
  const ranked = named.every((curve) => curve.rank !== null && curve.rank !== undefined);
  const shown = ranked && named.length > MOST_IN_RAMP
    ? Array.from({ length: MOST_IN_RAMP }, (_, i) => named[Math.round((i * (named.length - 1)) / (MOST_IN_RAMP - 1))])
    : named;
  const items = shown.map((curve) => element("li", {}, sample(curve), curve.name));
  if (shown.length < named.length) items.push(element("li", { class: "hint" }, `${named.length} curves in all`));
  return items;
}

function sample(curve) {
  const stroke = drawing("line", { x1: 1, x2: 29, y1: 6, y2: 6, class: "curve", "stroke-dasharray": curve.style.dash || null });
  stroke.style.stroke = curve.style.colour;
  return drawing("svg", { width: 30, height: 12, "aria-hidden": "true" }, stroke, marker(curve.style, 15, 6));
}
