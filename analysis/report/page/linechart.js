// Line charts: curves with error bands, markers and dashes, read by pointer or by keys.

import { MARGIN, announce, axisTitles, canvas, chartFrame, makeReadable, placeReadout, xAxis, yAxis } from "./chart.js";
import { drawing, element } from "./dom.js";
import { formatNumber, formatWithError } from "./format.js";
import { areSeveral, tellSample } from "./samples.js";
import { linearScale, logScale, stepScale, withOwnTicks, withWholeTicks } from "./scales.js";

// Curves beyond which bands are drawn fainter, and all others step back from the one read out.
const MOST_STRONG = 5;
const MOST_MARKED = 45;
const MOST_READ = 9;

// Draw curves into a new element.
//   curves  [{ name, style, points: [{ x, y, error, where }], thin }]
//   x, y    { title, kind: "linear" | "log" | "step" }
export function lineChart({ curves, x, y, label, width, height = 340 }) {
  const { node, readout } = chartFrame(height, label);
  const drawnCurves = curves.map((curve) => ({ ...curve, points: curve.points.filter((point) => fits(point, x, y)) }))
    .filter((curve) => curve.points.length);
  const svg = canvas(width, height);
  node.append(svg, readout);
  if (!drawnCurves.length) return node;
  const scales = scalesOf(drawnCurves, x, y, width, height);
  const floor = height - MARGIN.bottom;
  svg.append(
    yAxis(scales.y, scales.y.ticks(6), [MARGIN.left, width - MARGIN.right]),
    xAxis(scales.x, scales.x.ticks(Math.max(3, Math.floor(width / 90))), floor),
    axisTitles(width, height, x.title),
  );
  const faint = Math.min(1, MOST_STRONG / drawnCurves.length);
  const nodes = drawnCurves.map((curve) => drawing("g", { class: "series" }, band(curve, scales, floor, faint), line(curve, scales)));
  svg.append(...nodes);
  const light = drawing("g", { class: "light" });
  svg.append(light);
  makeReadable(node, reading(drawnCurves, scales, { node, readout, light, nodes, svg, x, several: areSeveral(drawnCurves.flatMap((curve) => curve.points)) }));
  return node;
}

function fits(point, x, y) {
  return !Number.isNaN(point.y) && (y.kind !== "log" || point.y > 0) && (x.kind !== "log" || point.x > 0);
}

function scalesOf(curves, x, y, width, height) {
  const points = curves.flatMap((curve) => curve.points);
  const xs = points.map((point) => point.x);
  const across = [MARGIN.left + 6, width - MARGIN.right - 6];
  const up = [height - MARGIN.bottom, MARGIN.top];
  const xDomain = [Math.min(...xs), Math.max(...xs)];
  const steps = [...new Set(xs)].sort((a, b) => a - b);
  const xScale = { linear: () => withWholeTicks(linearScale(xDomain, across), steps), log: () => withOwnTicks(logScale(xDomain, across), steps), step: () => stepScale(steps, across) };
  return { x: xScale[x.kind](), y: y.kind === "log" ? logScale(logDomain(points), up) : linearScale(domain(points), up) };
}

// With the error bands, a little air, and zero where it is near.
function domain(points) {
  const error = (point) => (Number.isFinite(point.error) ? point.error : 0);
  let low = Math.min(...points.map((point) => point.y - error(point)));
  let high = Math.max(...points.map((point) => point.y + error(point)));
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const air = (high - low) * 0.05;
  if (low >= 0 && low < 0.4 * high) return [0, high + air];
  return [low - air, high + air];
}

function logDomain(points) {
  const values = points.map((point) => point.y);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
}

function band(curve, scales, floor, faint) {
  const known = curve.points.filter((point) => Number.isFinite(point.error) && point.error > 0);
  if (curve.thin || known.length < 2) return "";
  const y = (value) => {
    const pixel = scales.y.of(value);
    return Number.isFinite(pixel) ? Math.min(floor, pixel) : floor;
  };
  const edge = (sign) => known.map((point) => `${scales.x.of(point.x).toFixed(1)},${y(point.y + sign * point.error).toFixed(1)}`);
  const node = drawing("polygon", { class: "band", points: [...edge(1), ...edge(-1).reverse()].join(" ") });
  node.style.fill = curve.style.colour;
  node.style.opacity = 0.2 * faint;
  return node;
}

function line(curve, scales) {
  const at = curve.points.map((point) => [scales.x.of(point.x), scales.y.of(point.y)]);
  const path = drawing("path", {
    class: curve.thin ? "curve thin" : "curve",
    d: at.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join(""),
    "stroke-dasharray": curve.style.dash || null,
  });
  path.style.stroke = curve.style.colour;
  const group = drawing("g", {}, path);
  if (!curve.thin && at.length <= MOST_MARKED) {
    for (const [px, py] of at) group.append(marker(curve.style, px, py));
  }
  return group;
}

const SHAPES = {
  circle: "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
  square: "M-2.9-2.9h5.8v5.8h-5.8z",
  triangle: "M0-3.9L3.7 2.9H-3.7z",
  diamond: "M0-4.1L4.1 0L0 4.1L-4.1 0z",
  cross: "M-3-3L3 3M-3 3L3-3",
  ring: "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
};

export function marker(style, x, y, size = 1) {
  const node = drawing("path", {
    class: `marker ${style.marker}`,
    d: SHAPES[style.marker],
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})`,
  });
  node.style.setProperty("--colour", style.colour);
  return node;
}

function reading(curves, scales, view) {
  const pixel = ({ curve, point }) => {
    const at = curves[curve].points[point];
    return [scales.x.of(at.x), scales.y.of(at.y)];
  };
  const nearestOn = (curve, px) => {
    const distances = curves[curve].points.map((point) => Math.abs(scales.x.of(point.x) - px));
    return { curve, point: distances.indexOf(Math.min(...distances)) };
  };
  const within = (index, size) => Math.min(size - 1, Math.max(0, index));
  return {
    first: () => ({ curve: 0, point: 0 }),
    nearest: (px, py) => {
      const places = curves.map((_, curve) => nearestOn(curve, px));
      const far = places.map((place) => Math.hypot(3 * (pixel(place)[0] - px), pixel(place)[1] - py));
      return places[far.indexOf(Math.min(...far))];
    },
    moved: ({ curve, point }, along, across) => {
      if (along) return { curve, point: within(point + along, curves[curve].points.length) };
      const next = (curve - across + curves.length) % curves.length;
      return nearestOn(next, pixel({ curve, point })[0]);
    },
    light: (place, spoken) => {
      const [px, py] = pixel(place);
      const curve = curves[place.curve];
      const point = curve.points[place.point];
      view.svg.classList.toggle("crowded", curves.length > MOST_STRONG);
      view.nodes.forEach((node, index) => node.classList.toggle("lit", index === place.curve));
      view.light.replaceChildren(
        drawing("line", { class: "cursor", x1: px, x2: px, y1: MARGIN.top, y2: view.node.clientHeight - MARGIN.bottom }),
        marker(curve.style, px, py, 1.9),
      );
      const others = curves.map((_, index) => nearestOn(index, px))
        .filter((other) => other.curve !== place.curve && Math.abs(pixel(other)[0] - px) < 12)
        .sort((a, b) => Math.abs(pixel(a)[1] - py) - Math.abs(pixel(b)[1] - py))
        .slice(0, MOST_READ - 1);
      const rows = [place, ...others].sort((a, b) => pixel(a)[1] - pixel(b)[1]);
      view.readout.replaceChildren(
        element("div", { class: "readout-head" }, position(point, view)),
        ...rows.map((row) => readoutRow(curves[row.curve], row.point, row.curve === place.curve)),
      );
      placeReadout(view.readout, view.node, px, py);
      if (spoken) announce(`${curve.name}, ${position(point, view)}: ${formatWithError(point.y, point.error)}`);
    },
    dim: () => {
      view.svg.classList.remove("crowded");
      view.nodes.forEach((node) => node.classList.remove("lit"));
      view.light.replaceChildren();
      view.readout.hidden = true;
    },
  };
}

function readoutRow(curve, index, lit) {
  const point = curve.points[index];
  return element(
    "div",
    { class: lit ? "readout-row lit" : "readout-row" },
    element("span", { class: "swatch", style: { "background-color": curve.style.colour } }),
    element("span", { class: "readout-name" }, curve.name),
    element("span", { class: "readout-value" }, formatWithError(point.y, point.error)),
  );
}

function position(point, view) {
  const { model, population, ...rest } = point.where;
  const named = Object.entries(rest).map(([dim, label]) => (typeof label === "string" ? label : `${dim.replaceAll("_", " ")} ${formatNumber(label)}`));
  if (view.x.title.startsWith("relative depth")) named.push(`relative depth ${formatNumber(point.x, 2)}`);
  if (view.several && point.sample) named.push(tellSample(point.sample));
  return named.join(" · ");
}
