// One sentence a figure, made from its numbers: what an eye would see first.

import { capitalised, formatNumber, joined } from "./format.js";

const MOST_CURVES = 3;
const DIGITS = 3;

// What is drawn over what, where, and the course of the first curves.
export function sayCurves(curves, { subject, over, place, along }) {
  const named = curves.filter((curve) => !curve.unnamed);
  const told = named.slice(0, MOST_CURVES).map((curve) => sayCurve(curve, along));
  const rest = named.length - told.length;
  const parts = [`${capitalised(subject)} by ${over}${place ? `; ${place}` : ""}.`, ...told];
  if (rest > 0) parts.push(rest === 1 ? "One more curve is in the figure." : `${rest} more curves are in the figure.`);
  const banded = curves.some((curve) => curve.points.some((point) => Number.isFinite(point.error)));
  if (banded) parts.push("Bands are ± 1 standard error.");
  return parts.join(" ");
}

function sayCurve({ name, points }, along) {
  const [first, last] = [points[0], points.at(-1)];
  if (points.length === 1) return `${name} is ${formatNumber(first.y, DIGITS)} at ${along(first)}.`;
  const ordered = [...points].sort((a, b) => a.y - b.y);
  const [least, most] = [ordered[0], ordered.at(-1)];
  const change = `${name} ${verb(first, last, least, most)} from ${formatNumber(first.y, DIGITS)} at ${along(first)} to ${formatNumber(last.y, DIGITS)} at ${along(last)}`;
  const ends = [first, last];
  const extremes = [["highest", most], ["lowest", least]].filter(([, point]) => !ends.includes(point))
    .map(([name, point]) => `${name} ${formatNumber(point.y, DIGITS)} at ${along(point)}`);
  return `${change}${extremes.length ? ` (${extremes.join(", ")})` : ""}.`;
}

function verb(first, last, least, most) {
  const span = most.y - least.y;
  if (span === 0 || Math.abs(last.y - first.y) < 0.1 * span) return "goes";
  return last.y > first.y ? "rises" : "falls";
}

export function sayCells(points, { rows, columns, place }) {
  const known = points.filter((point) => !Number.isNaN(point.y));
  const ordered = [...known].sort((a, b) => a.y - b.y);
  const at = (point) => `${columns} ${point.where[columns]}, ${rows} ${point.where[rows]}`;
  const [least, most] = [ordered[0], ordered.at(-1)];
  return `${capitalised(place)}. From ${formatNumber(least.y, DIGITS)} (${at(least)}) to ${formatNumber(most.y, DIGITS)} (${at(most)}).`;
}

export function sayNothing(quantity, reasons) {
  return `Nothing to show: no model that is shown has ${quantity} ${joined(reasons)}.`;
}
