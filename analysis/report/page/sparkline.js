// A figure the size of a stamp: curves and their range, nothing else.

import { drawing } from "./dom.js";
import { formatNumber } from "./format.js";
import { linearScale } from "./scales.js";

const WIDTH = 180;
const HEIGHT = 64;
// Room for −0.00778 or 1.23×10⁻⁵.
const LABEL = 58;

export function sparkline(curves) {
  const svg = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  const points = curves.flatMap((curve) => curve.points);
  if (!points.length) return svg;
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const [low, high] = range(points.map((point) => point.y));
  const x = linearScale(range(points.map((point) => point.x)), [4, WIDTH - LABEL - 6]);
  const y = linearScale(low === high ? [low - 1, high + 1] : [low, high], [HEIGHT - 7, 7]);
  for (const curve of curves) {
    const at = curve.points.map((point) => `${x.of(point.x).toFixed(1)} ${y.of(point.y).toFixed(1)}`);
    const path = drawing("path", { class: "curve", d: `M${at.join("L")}`, "stroke-dasharray": curve.style.dash || null });
    path.style.stroke = curve.style.colour;
    svg.append(path);
  }
  for (const [value, place] of low === high ? [[low, HEIGHT / 2 + 4]] : [[high, 11], [low, HEIGHT - 3]]) {
    svg.append(drawing("text", { x: WIDTH - LABEL, y: place }, formatNumber(value, 3)));
  }
  return svg;
}
