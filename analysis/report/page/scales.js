// From values to pixels: linear, logarithmic, and one for training steps that begin at 0.

import { formatNumber, formatStep } from "./format.js";

export function linearScale([low, high], [start, end]) {
  const span = high - low || 1;
  return {
    of: (value) => start + ((value - low) / span) * (end - start),
    ticks: (count) => niceTicks(low, high, count),
    format: formatNumber,
  };
}

export function logScale([low, high], [start, end]) {
  const [bottom, top] = [Math.log10(low), Math.log10(high)];
  const span = top - bottom || 1;
  return {
    of: (value) => start + ((Math.log10(value) - bottom) / span) * (end - start),
    ticks: (count) => logTicks(low, high, count),
    format: formatNumber,
  };
}

// Steps by their logarithm where they were chosen so, evenly otherwise; ticks are real steps.
export function stepScale(steps, [start, end]) {
  const positive = steps.filter((step) => step > 0);
  const logarithmic = positive.length > 2 && positive.at(-1) > 4 * positive[Math.floor(positive.length / 2)];
  const bend = logarithmic ? Math.max(1, positive[0]) : 1;
  const warp = logarithmic ? (step) => Math.log2(1 + step / bend) : (step) => step;
  const scale = linearScale([warp(steps[0]), warp(steps.at(-1))], [start, end]);
  const of = (step) => scale.of(warp(step));
  return { of, ticks: () => spacedOut(steps, of), format: formatStep };
}

// The same scale with ticks at the values themselves, where they are few.
export function withOwnTicks(scale, values) {
  return values.length > 12 ? scale : { ...scale, ticks: () => spacedOut(values, scale.of, 40) };
}

// The same scale with ticks at whole numbers alone, for what is counted.
export function withWholeTicks(scale, values) {
  if (!values.every(Number.isInteger)) return scale;
  return { ...scale, ticks: (count) => scale.ticks(count).filter(Number.isInteger) };
}

// Labels as they come, evenly spaced.
export function ordinalScale(labels, [start, end]) {
  const width = (end - start) / labels.length;
  const middle = (index) => start + (index + 0.5) * width;
  return { width, middle, shown: (gap) => spacedOut(labels.map((_, i) => i), middle, gap) };
}

// As many of the values, the last among them, as fit with a gap.
function spacedOut(values, of, gap = 46) {
  const kept = [];
  for (const value of [...values].reverse()) {
    if (!kept.length || Math.abs(of(value) - of(kept.at(-1))) >= gap) kept.push(value);
  }
  return kept.reverse();
}

function niceTicks(low, high, count) {
  const rough = (high - low || 1) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high, count) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) {
    const within = [first - 1, first].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power))
      .filter((tick) => tick >= low && tick <= high);
    return within.length > 1 ? within : niceTicks(low, high, count);
  }
  const stride = Math.max(1, Math.ceil((last - first + 1) / count));
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push(10 ** power);
  return ticks;
}
