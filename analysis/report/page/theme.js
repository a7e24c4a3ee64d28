// Light and dark: the system's choice, or the reader's.

import { Choice } from "./controls.js";

const system = matchMedia("(prefers-color-scheme: dark)");
let picked = "system";
let redraw = () => {};

function apply() {
  const dark = picked === "system" ? system.matches : picked === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

export function followTheme(onChange) {
  redraw = onChange;
  apply();
  system.addEventListener("change", () => {
    apply();
    redraw();
  });
}

export function themeChoice() {
  const choice = new Choice("Theme", (value) => {
    picked = value;
    apply();
    redraw();
  });
  choice.offer(["system", "light", "dark"].map((value) => ({ value, label: value })));
  return choice.node;
}
