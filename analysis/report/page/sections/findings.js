// What to know before trusting a curve.

import { element } from "../dom.js";
import { counted } from "../format.js";

const MOST_OPEN = 8;

export function findingsSection(contents) {
  const nodes = contents.findings.length
    ? contents.findings.map(block)
    : [element("p", {}, "Nothing stands out: no duplicate weights, no gaps, no values that are not finite.")];
  return { id: "warnings", title: "Warnings", nodes, update: () => {} };
}

function block({ name, level, meaning, places }) {
  const items = places.map(([where, text]) => element("li", {}, element("span", { class: "where" }, where), text));
  const list = element("ul", {}, ...items);
  return element(
    "article",
    { class: `finding ${level}` },
    element("h3", {}, element("span", { class: "level" }, level), name),
    element("p", {}, meaning),
    places.length > MOST_OPEN ? element("details", {}, element("summary", {}, counted(places.length, "model")), list) : list,
  );
}
