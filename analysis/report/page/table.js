// The numbers behind a figure: as a table in the page, and as files.

import { element } from "./dom.js";
import { exactNumber } from "./format.js";
import { sampleColumns } from "./samples.js";

const MOST_ROWS = 400;

// Rows of curves or cells, one a value: where it is, of which sample, the value, its standard error.
export function recordsOf(points, metric) {
  return points.map((point) => ({
    metric,
    ...point.where,
    ...sampleColumns(point.sample),
    value: exactNumber(point.y, 4),
    standard_error: exactNumber(point.error, 2),
  }));
}

export function columnsOf(records) {
  const names = new Set(records.flatMap((record) => Object.keys(record)));
  const last = ["value", "standard_error"];
  return [...[...names].filter((name) => !last.includes(name)), ...last.filter((name) => names.has(name))];
}

export function recordTable(records, caption) {
  const columns = columnsOf(records);
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name.replaceAll("_", " "))));
  const body = records.slice(0, MOST_ROWS).map((record) => element(
    "tr",
    {},
    ...columns.map((name) => element("td", { class: isNumeric(record[name]) ? "number" : null }, String(record[name] ?? ""))),
  ));
  const more = records.length > MOST_ROWS
    ? element("p", { class: "hint" }, `The first ${MOST_ROWS} of ${records.length} rows; CSV and JSON hold all of them.`)
    : null;
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption }, table, more);
}

function isNumeric(value) {
  return value !== undefined && value !== "" && Number.isFinite(Number(value));
}

export function csvText(records) {
  const columns = columnsOf(records);
  const lines = records.map((record) => columns.map((name) => quoted(record[name])).join(","));
  return [columns.join(","), ...lines].join("\r\n") + "\r\n";
}

// A name that begins like a formula must not become one in a spreadsheet.
function quoted(value) {
  const text = String(value ?? "");
  const safe = /^[=+@\t\r]|^-\D/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function jsonText(records) {
  const numeric = (name, value) => (["value", "standard_error"].includes(name) ? (value === "" ? null : Number(value)) : value);
  const plain = records.map((record) => Object.fromEntries(Object.entries(record).map(([name, value]) => [name, numeric(name, value)])));
  return `${JSON.stringify(plain, null, 1)}\n`;
}

export function download(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
