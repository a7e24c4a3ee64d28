// Choices: labelled selects, groups of models, a slider of steps.

import { element, freshId, replace } from "./dom.js";

// A select; options are { value, label, group }.
export class Choice {
  constructor(label, onPick) {
    const id = freshId("choice");
    this.select = element("select", { id, onchange: () => onPick(this.select.value) });
    this.node = element("div", { class: "choice" }, element("label", { for: id }, label), this.select);
    this.signature = "";
  }

  get value() {
    return this.select.value;
  }

  // Offer options, keeping what was picked while it is on offer.
  offer(options, value = this.value) {
    const signature = JSON.stringify(options);
    if (signature !== this.signature) {
      this.signature = signature;
      replace(this.select, ...groupedOptions(options));
    }
    const values = options.map((option) => String(option.value));
    this.select.value = values.includes(String(value)) ? String(value) : (values[0] ?? "");
    this.node.hidden = options.length < 2;
    return this.select.value;
  }

  show(shown) {
    this.node.hidden = !shown || this.select.options.length < 2;
  }
}

function groupedOptions(options) {
  const nodes = [];
  const groups = new Map();
  for (const { value, label, group } of options) {
    const option = element("option", { value }, label);
    if (!group) {
      nodes.push(option);
    } else {
      if (!groups.has(group)) {
        groups.set(group, element("optgroup", { label: group }));
        nodes.push(groups.get(group));
      }
      groups.get(group).append(option);
    }
  }
  return nodes;
}

// A button that opens a list of check boxes; entries are { value, label, swatch }.
export class CheckMenu {
  constructor(label, onChange) {
    this.onChange = onChange;
    this.summary = element("span", {});
    this.list = element("div", { class: "menu-list", role: "group", "aria-label": label });
    this.details = element(
      "details",
      { class: "menu", onkeydown: (event) => this.closeOn(event, event.key === "Escape") },
      element("summary", {}, this.summary),
      this.list,
    );
    this.node = element("div", { class: "choice" }, element("span", { class: "label" }, label), this.details);
    document.addEventListener("pointerdown", (event) => this.closeOn(event, !this.details.contains(event.target)));
  }

  closeOn(event, closing) {
    if (!closing || !this.details.open) return;
    this.details.open = false;
    if (event.type === "keydown") this.details.firstElementChild.focus();
  }

  offer(entries, checked, summary) {
    this.summary.textContent = summary;
    const signature = JSON.stringify(entries.map((entry) => entry.value));
    if (signature !== this.signature) {
      this.signature = signature;
      this.boxes = entries.map((entry) => element("input", { type: "checkbox", value: entry.value, onchange: () => this.changed() }));
      const rows = entries.map((entry, i) => element("label", {}, this.boxes[i], entry.swatch, element("span", {}, entry.label)));
      const all = (on) => () => {
        for (const box of this.boxes) box.checked = on;
        this.changed();
      };
      const buttons = element(
        "div",
        { class: "menu-buttons" },
        element("button", { type: "button", onclick: all(true) }, "All"),
        element("button", { type: "button", onclick: all(false) }, "None"),
      );
      replace(this.list, entries.length > 2 ? buttons : null, ...rows);
    }
    for (const box of this.boxes) box.checked = checked.has(Number(box.value));
    this.node.hidden = entries.length < 2;
  }

  changed() {
    this.onChange(new Set(this.boxes.filter((box) => box.checked).map((box) => Number(box.value))));
  }
}

// A slider over places of a list.
export class Slider {
  constructor(label, onMove) {
    const id = freshId("slider");
    this.input = element("input", { id, type: "range", min: "0", step: "1", oninput: () => onMove(Number(this.input.value)) });
    this.output = element("output", { for: id });
    this.node = element("div", { class: "choice slider" }, element("label", { for: id }, label, " ", this.output), this.input);
  }

  offer(size, place, text) {
    this.input.max = String(size - 1);
    this.input.value = String(place);
    this.output.textContent = text;
    this.input.setAttribute("aria-valuetext", text);
    this.node.hidden = size < 2;
  }
}
