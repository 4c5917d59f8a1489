// Memory over the program: what the fullest device holds, by kind, with the limit drawn.

import { facts, h, resized, s, table, tint } from "./elements.js";
import { bytes, count, marks, share } from "./units.js";

const KINDS = [
  "parameter",
  "optimizer_state",
  "gradient",
  "activation",
  "temporary",
  "communication_buffer",
  "input",
  "buffer",
];
const HEIGHT = 300,
  LEFT = 78,
  TOP = 28,
  BOTTOM = 34;
const COLUMNS = 480;
/** Pixels around the limit line in which no other line is drawn. */
const CLEAR = 9;

/** Returns the view of a plan's memory; `top` is the end of the scale in bytes where two plans share it.
 * @param {import("./types").Sheet} sheet
 * @param {number} [top] */
export function memoryView({ memory, request, program }, top) {
  if (!program) return h("p", {}, "There is no plan.");
  const limit = request.memory_limit_bytes;
  const steps = program.schedule.instruction.length + 1;
  const kinds = [...memory.timeline].sort((a, b) => rank(a.kind) - rank(b.kind));
  const columns = sampled(kinds, steps);
  const rows = kinds.map(({ kind }, k) => [
    [h("i", { class: `swatch ${tint(rank(kind))}` }), kind.replaceAll("_", " ")],
    bytes(memory.by_kind[kind] ?? 0),
    share((memory.by_kind[kind] ?? 0) / memory.peak_bytes),
    bytes(Math.max(...kinds[k].bytes)),
  ]);
  return h(
    "div",
    { class: "memory" },
    facts([
      ["peak", `${bytes(memory.peak_bytes)}, ${share(memory.peak_bytes / limit)} of the limit`],
      ["reached while computing", h("code", {}, memory.at)],
    ]),
    resized((wide) =>
      chart(wide, kinds, columns, steps, limit, memory.peak_bytes, top ?? scale(memory.peak_bytes, limit)),
    ),
    table("Memory by kind", [["kind"], ["at the peak", "number"], ["share", "number"], ["maximum", "number"]], rows),
  );
}

const rank = (kind) => (KINDS.indexOf(kind) + 8) % 8;

/** Returns the end of the scale: the limit where the peak is at least a third of it, else a little above the peak. */
export const scale = (peak, limit) => (limit <= 3 * peak ? Math.max(limit, peak) * 1.05 : peak * 1.25);

/** Returns bytes by kind in at most COLUMNS columns; each shows its fullest instruction, so that no peak is lost. */
function sampled(kinds, steps) {
  const dense = kinds.map(({ moments, bytes: sizes }) => {
    const filled = new Float64Array(steps);
    for (const [k, from] of moments.entries()) filled.fill(sizes[k], from, moments[k + 1] ?? steps);
    return filled;
  });
  const columns = Math.min(COLUMNS, steps);
  return Array.from({ length: columns }, (_, column) => {
    const [from, to] = [
      Math.floor((column * steps) / columns),
      Math.max(Math.floor(((column + 1) * steps) / columns), 1),
    ];
    let best = from,
      most = -1;
    for (let at = from; at < to; at += 1) {
      const total = dense.reduce((sum, each) => sum + each[at], 0);
      if (total > most) [best, most] = [at, total];
    }
    return { at: best, sizes: dense.map((each) => each[best]) };
  });
}

function chart(wide, kinds, columns, steps, limit, peak, top) {
  const x = (column) => LEFT + ((wide - LEFT) * column) / columns.length;
  const y = (size) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - size / top);
  let floor = columns.map(() => 0);
  const areas = kinds.map(({ kind }, k) => {
    const next = floor.map((below, c) => below + columns[c].sizes[k]);
    const d =
      `M${x(0)} ${y(0)}${next.map((size, c) => `V${y(size).toFixed(1)}H${x(c + 1).toFixed(1)}`).join("")}` +
      `${floor
        .map((_, c) => floor.length - 1 - c)
        .map((c) => `V${y(floor[c]).toFixed(1)}H${x(c).toFixed(1)}`)
        .join("")}Z`;
    floor = next;
    return s("path", { d, class: tint(rank(kind)) }, s("title", {}, kind));
  });
  const ticks = marks(top, 5, true).map((size) => [
    Math.abs(y(size) - y(limit)) > CLEAR && s("line", { x1: LEFT, x2: wide, y1: y(size), y2: y(size), class: "grid" }),
    s("text", { x: LEFT - 8, y: y(size) + 4, class: "end" }, bytes(size)),
  ]);
  const cursor = s("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor", visibility: "hidden" });
  const told = h("output", { class: "told quiet" }, "Point at the chart to see what is in memory at that time.");
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const column = Math.floor((((event.clientX - box.x) / box.width) * wide - LEFT) / ((wide - LEFT) / columns.length));
    if (!columns[column]) return;
    const { at, sizes } = columns[column];
    for (const [name, value] of [
      ["x1", x(column + 0.5)],
      ["x2", x(column + 0.5)],
      ["visibility", "visible"],
    ])
      cursor.setAttribute(name, value);
    const parts = kinds
      .map(({ kind }, k) => [kind, sizes[k]])
      .filter(([, size]) => size)
      .map(([kind, size]) => `${kind.replaceAll("_", " ")} ${bytes(size)}`);
    told.replaceChildren(
      `instruction ${count(at)} of ${count(steps - 1)}: ${bytes(sizes.reduce((a, b) => a + b, 0))}: ${parts.join(", ")}`,
    );
  };
  const svg = s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${wide} ${HEIGHT}`,
      role: "img",
      onpointermove: point,
      "aria-label": `Memory over ${steps} instructions: peak ${bytes(peak)}, limit ${bytes(limit)}`,
    },
    ticks,
    areas,
    cursor,
    limitLine(wide, limit, top, y),
    s("text", { x: LEFT, y: HEIGHT - 12 }, "first instruction"),
    s("text", { x: wide - 4, y: HEIGHT - 12, class: "end" }, `end (${count(steps - 1)} instructions)`),
  );
  return [svg, h("figcaption", {}, told)];
}

/** Draws the limit with its label above it, where no memory is drawn. A limit far above the chart is drawn at the upper
 * edge with an arrow. */
function limitLine(wide, limit, top, y) {
  const above = limit > top;
  const at = above ? TOP - 8 : y(limit);
  return [
    s("line", { x1: LEFT, x2: wide, y1: at, y2: at, class: "limit" }),
    s(
      "text",
      { x: wide - 4, y: at - 5, class: "end limit-text" },
      `${above ? "↑ " : ""}limit ${bytes(limit)}${above ? ", above the chart" : ""}`,
    ),
  ];
}
