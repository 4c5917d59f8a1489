// Charts of candidates as points over the number of devices, one chart per figure, both axes logarithmic. Planned
// candidates are filled; excluded ones are hollow, at their lower bound; a line joins the frontier.

import { h, resized, s, tint } from "./elements.js";

const HIGH = 300;
const LEFT = 84;
const RIGHT = 16;
const TOP = 34;
const BOTTOM = 40;
const SPREAD = 11;
const LEGEND = [
  ["planned", "planned"],
  ["best", "frontier"],
  ["hollow", "excluded by a bound, at its best case"],
  ["cross", "does not fit in memory"],
];

/** @typedef {{title: string, of: (one: any) => number, shown: (value: number) => string}} Figure */

/** Returns the charts side by side, and below them the facts about the candidate under the pointer.
 * @param {any[]} candidates
 * @param {Figure[]} figures */
export function scatter(candidates, figures) {
  const told = h("output", { class: "told quiet" }, "Point at a candidate to see its figures, or why it was excluded.");
  const names = [...new Set(candidates.map((one) => one.hardware))];
  const root = h("div", { class: "scatter" });
  const point = (number) => {
    told.replaceChildren(candidates[number].says);
    for (const mark of root.querySelectorAll(".mark"))
      mark.classList.toggle("near", mark.getAttribute("data-number") === String(number));
  };
  const draw = (figure) => resized((wide) => [chart(wide, candidates, figure, names, point)]);
  root.append(h("div", { class: "pair-of-charts" }, figures.map(draw)), legend(names), told);
  return root;
}

function legend(names) {
  const swatch = (kind) =>
    s("svg", { class: "chart key", viewBox: "-8 -8 16 16", width: 16, height: 16 }, shape(kind, 0, 0));
  const colours = names.length > 1 ? names.map((each, k) => [h("i", { class: `swatch ${tint(k)}` }), each]) : [];
  const kinds = LEGEND.map(([kind, words]) => [swatch(kind), words]);
  return h(
    "div",
    { class: "legend" },
    [...colours, ...kinds].map((parts) => h("span", {}, parts)),
  );
}

/** @param {Figure} figure */
function chart(wide, candidates, figure, names, point) {
  const devices = [...new Set(candidates.map((one) => one.devices))].sort((a, b) => a - b);
  const values = candidates.map(figure.of).filter((value) => value > 0);
  const [x, y] = [across(devices, wide), upwards(values)];
  const placed = candidates.map((one, number) => ({ one, number, x: x(one.devices), y: y(figure.of(one)) }));
  spread(placed, (wide - LEFT - RIGHT) / Math.max(1, devices.length));
  const best = placed.filter(({ one }) => one.isBest).sort((a, b) => a.x - b.x);
  return s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${wide} ${HIGH}`,
      role: "img",
      "aria-label": `${figure.title} by number of devices`,
    },
    s("text", { class: "heading", x: 0, y: 16 }, figure.title),
    ticksBetween(values).map((value) => [
      s("line", { class: "grid", x1: LEFT, x2: wide, y1: y(value), y2: y(value) }),
      s("text", { class: "end", x: LEFT - 8, y: y(value) + 4 }, figure.shown(value)),
    ]),
    devices.map((number) => s("text", { class: "middle", x: x(number), y: HIGH - 20 }, String(number))),
    s("text", { class: "middle", x: (LEFT + wide) / 2, y: HIGH - 4 }, "devices"),
    best.length > 1 &&
      s("polyline", { class: "frontier", points: best.map((each) => `${each.x},${each.y}`).join(" ") }),
    placed.map((each) => mark(each, tint(names.indexOf(each.one.hardware)), point)),
  );
}

/** Moves candidates with equal coordinates side by side. */
function spread(placed, slot) {
  const groups = new Map();
  for (const each of placed) {
    const key = `${each.x} ${each.y.toFixed(0)}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  for (const group of groups.values()) {
    const step = Math.min(SPREAD, (0.9 * slot) / group.length);
    for (const [k, each] of group.entries()) each.x += (k - (group.length - 1) / 2) * step;
  }
}

function across(devices, wide) {
  const [low, high] = [Math.log2(devices[0]), Math.log2(devices.at(-1))];
  const room = wide - LEFT - RIGHT - 50;
  return (number) => LEFT + 25 + (high > low ? (room * (Math.log2(number) - low)) / (high - low) : room / 2);
}

function upwards(values) {
  const [low, high] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))];
  const room = HIGH - TOP - BOTTOM - 16;
  return (value) => HIGH - BOTTOM - 8 - (high > low ? (room * (Math.log(value) - low)) / (high - low) : room / 2);
}

/** Returns powers of ten within the values, also times 2 and 5 where there are few, or the values' ends. */
function ticksBetween(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const powers = Array.from(
    { length: 2 + Math.ceil(Math.log10(high / low)) },
    (_, k) => Math.floor(Math.log10(low)) + k,
  );
  const round = (steps) =>
    powers.flatMap((power) => steps.map((step) => step * 10 ** power)).filter((each) => each >= low && each <= high);
  const [few, more] = [round([1]), round([1, 2, 5])];
  if (few.length > 3) return few;
  return more.length > 1 ? more : [...new Set([low, high])];
}

function mark({ one, number, x, y }, colour, point) {
  const kind = one.doesNotFit ? "cross" : one.isBest ? "best" : one.isPlanned ? "planned" : "hollow";
  const act = () => point(number);
  return s(
    "g",
    { class: `mark ${colour}`, "data-number": number, onpointerenter: act, onclick: act },
    s("title", {}, one.says),
    s("circle", { class: "reach", cx: x, cy: y, r: 9 }),
    shape(kind, x, y),
  );
}

function shape(kind, x, y) {
  if (kind === "cross") return s("path", { class: kind, d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
  return s("circle", { class: kind, cx: x, cy: y, r: { planned: 4.5, best: 6.5, hollow: 3.5 }[kind] });
}
