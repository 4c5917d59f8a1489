// Formats numbers for people, as the command line does.

const PICO = 1e-12;

/** Formats seconds: "3.486 ms". */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size >= 1) return `${seconds.toFixed(3)} s`;
  if (size >= 1e-3) return `${(seconds * 1e3).toFixed(3)} ms`;
  return `${(seconds * 1e6).toFixed(size >= 1e-4 ? 1 : 2)} µs`;
}

/** Formats picoseconds, the unit in which programs are priced. */
export const ps = (picoseconds) => time(picoseconds * PICO);

/** Formats bytes: "12.3 MiB". */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let left = Math.abs(size);
  const sign = size < 0 ? "−" : "";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (left < 1024) return `${sign}${unit === "B" ? left : left.toFixed(1)} ${unit}`;
    left /= 1024;
  }
  return `${sign}${left.toFixed(1)} TiB`;
}

/** Formats a share: "12 %", "0.3 %". */
export function share(part) {
  if (part === null || part === undefined || Number.isNaN(part)) return "–";
  const percent = part * 100;
  if (percent && Math.abs(percent) < 0.99e-4) return "< 0.0001 %";
  return `${Math.abs(percent) >= 9.5 ? percent.toFixed(0) : Number(percent.toPrecision(2))} %`;
}

/** Formats a change with its sign by another formatter: signed(−2e-3, time). */
export const signed = (change, shown) => (change ? `${change > 0 ? "+" : "−"}${shown(Math.abs(change))}` : "same");

/** Formats a whole number with spaces between thousands. */
export const count = (number) => number.toLocaleString("en-US").replaceAll(",", " ");

/** Formats floating-point operations: "12.3 TFLOP". */
export function flops(number) {
  const power = Math.max(0, Math.min(6, Math.floor(Math.log10(number || 1) / 3)));
  return `${Number((number / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G", "T", "P", "E"][power]}FLOP`;
}

/** Formats the bytes per second of a link: "450 GB/s". */
export const rate = (speed) => `${Number((speed / 1e9).toPrecision(3))} GB/s`;

/** Formats a round time without trailing zeros: "50 ms". */
export const round = (picoseconds) =>
  ps(picoseconds)
    .replace(/(\.\d*?)0+ /, "$1 ")
    .replace(". ", " ");

/** Returns at most `about` + 1 round marks for an axis from 0 to `most`; with `binary`, the step is a power of two. */
export function marks(most, about, binary = false) {
  if (!(most > 0)) return [0];
  const rough = most / about;
  const size = binary ? 2 ** Math.ceil(Math.log2(rough)) : decimal(rough);
  return Array.from({ length: Math.floor(most / size) + 1 }, (_, k) => k * size);
}

function decimal(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
}
