// Numbers, sizes and lists as people read them.

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export const MISSING = "–";

export function formatNumber(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return MISSING;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    const [mantissa, exponent] = value.toExponential(Math.min(2, digits - 1)).split("e");
    const trimmed = String(Number(mantissa));
    const power = `10${superscript(String(Number(exponent)))}`;
    if (trimmed === "1") return power;
    return trimmed === "-1" ? `−${power}` : `${trimmed.replace("-", "−")}×${power}`;
  }
  return plainNumber(value, digits).replace("-", "−");
}

function superscript(text) {
  return [...text].map((char) => SUPERSCRIPTS[char]).join("");
}

function plainNumber(value, digits) {
  const rounded = Number(value.toPrecision(Number.isInteger(value) ? 15 : digits));
  return Math.abs(rounded) >= 1e4 ? rounded.toLocaleString("en-GB") : String(rounded);
}

// All digits that the page holds: four of a value, two of a standard error, all of a count.
export function exactNumber(value, digits) {
  if (value === null || !Number.isFinite(value)) return "";
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(digits)));
}

export function formatWithError(value, error) {
  if (!Number.isFinite(error) || error === 0) return formatNumber(value);
  return `${formatNumber(value)} ± ${formatNumber(error, 2)}`;
}

export function formatStep(step) {
  if (step >= 1e6 && step % 1e4 === 0) return `${step / 1e6}M`;
  if (step >= 1e4 && step % 100 === 0) return `${step / 1e3}k`;
  return String(step);
}

export function formatBytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

export function joined(parts, most = 4) {
  const shown = parts.slice(0, most);
  if (parts.length > most) return `${shown.join(", ")} and ${parts.length - most} more`;
  if (shown.length < 2) return shown.join("");
  return `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
}

export function counted(count, noun, plural = `${noun}s`) {
  return `${count.toLocaleString("en-GB")} ${count === 1 ? noun : plural}`;
}

export function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
