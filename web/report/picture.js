// Draws a layout as SVG: nested boxes, ops, ports, and edges with their shardings.

import { s } from "./elements.js";
import { cut, LINE, TITLE } from "./layout.js";
import { ps, share } from "./units.js";

const HEAT = [0.001, 0.005, 0.02, 0.08, 0.25];
/** Names of the colour steps. */
export const HEAT_NAMES = ["< 0.1 %", "< 0.5 %", "< 2 %", "< 8 %", "< 25 %", "≥ 25 %"];

/** Draws the layout of the root box. `show` gives the class and the notes of a node, and handles clicks. */
export function picture(found, show) {
  const { width, height } = found;
  return s(
    "svg",
    { class: "picture", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "graph", width, height },
    s("defs", {}, tip("tip"), tip("tip-moved")),
    inside(found, show),
  );
}

function tip(id) {
  return s(
    "marker",
    {
      id,
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 9,
      markerHeight: 9,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    },
    s("path", { d: "M0 0L8 4L0 8z", class: id }),
  );
}

function inside(found, show) {
  return [found.groups.map((group) => edge(group, show)), found.parts.map((part) => node(part, show))];
}

/** Returns the class that colours a share of the step. */
export function heat(part) {
  const step = HEAT.findIndex((limit) => part < limit);
  return `heat${step < 0 ? HEAT.length : step}`;
}

function node(part, show) {
  const { node: what, x, y, width, height } = part;
  const at = { transform: `translate(${x - width / 2} ${y - height / 2})` };
  const pick = (event) => {
    event.stopPropagation();
    show.pick(what);
  };
  const named = {
    "data-key": part.key,
    tabindex: "-1",
    role: "button",
    "aria-label": `${what.kind} ${what.name}, ${show.note(what)}`,
  };
  if (part.inside) {
    const { box } = part.inside;
    return s(
      "g",
      at,
      s("rect", { class: "frame", width, height, rx: 6 }),
      s(
        "g",
        { ...named, class: "node title", "aria-expanded": "true", onclick: pick },
        s("rect", { width, height: TITLE, rx: 6 }),
        s("text", { x: 10, y: 17, class: "name" }, `▾ ${box.name}`),
        s("text", { x: width - 10, y: 17, class: "note end" }, width > 330 ? show.note(box) : ps(box.time + box.moved)),
      ),
      inside(part.inside, show),
    );
  }
  const letters = Math.floor((width - 24) / 7.2);
  const open = what.kind === "box" ? { "aria-expanded": "false" } : {};
  return s(
    "g",
    { ...at, ...named, ...open, class: `node ${what.kind} ${show.kind(what)}`, onclick: pick },
    s("title", {}, `${what.name}\n${show.note(what)}`),
    s("rect", { width, height, rx: what.kind === "port" || what.kind === "input" ? height / 2 : 6 }),
    s("text", { x: width / 2, y: height > 34 ? 17 : height / 2 + 4, class: "name middle" }, label(what, letters)),
    height > 34 && s("text", { x: width / 2, y: 32, class: "note middle" }, cut(show.brief(what), letters + 4)),
    what.kind === "box" && parts(what, width, height),
  );
}

function label(what, letters) {
  if (what.kind === "input" && what.name.length > letters) return `…${what.name.slice(1 - letters)}`;
  if (what.kind === "port") return cut(`${what.way} ${what.name}`, letters);
  return (what.kind === "box" ? "▸ " : "") + cut(what.name, letters - (what.kind === "box" ? 2 : 0));
}

/** Draws the shares of compute and communication at the bottom of a closed box. */
function parts(box, width, height) {
  const long = width - 20,
    all = box.time + box.moved || 1;
  return [
    s("rect", { class: "compute", x: 10, y: height - 9, width: (long * box.time) / all, height: 3 }),
    s("rect", {
      class: "communication",
      x: 10 + (long * box.time) / all,
      y: height - 9,
      width: (long * box.moved) / all,
      height: 3,
    }),
  ];
}

/** Returns a path without corners: quadratic curves between the midpoints, with the points as control points. */
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const bends = points.slice(1, -1).map((point, k) => {
    const next = points[k + 2];
    const end = k === points.length - 3 ? next : { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 };
    return `Q${at(point)} ${at(end)}`;
  });
  return `M${at(points[0])}${bends.join("") || `L${at(points.at(-1))}`}`;
}

function edge(group, show) {
  const moved = group.uses.some((use) => use.moves.length);
  const { x, y, width, height } = group;
  const top = y - height / 2;
  const wide = 1 + Math.min(4, 40 * show.part(group.time));
  const text = `${group.uses.length} use${group.uses.length > 1 ? "s" : ""}, ${ps(group.time)} (${share(show.part(group.time))})`;
  const classes = `edge${moved ? " moved" : ""}`;
  return s(
    "g",
    { class: classes, "data-from": group.from, "data-to": group.to, onclick: () => show.pickEdge(group) },
    s("title", {}, `${group.lines.join("\n")}\n${text}`),
    s("path", { d: curve(group.points), "stroke-width": wide, "marker-end": `url(#tip${moved ? "-moved" : ""})` }),
    s("rect", { class: "paper", x: x - width / 2 + 4, y: top, width: width - 8, height }),
    group.lines.map((line, k) => s("text", { x, y: top + 10 + k * LINE, class: "middle" }, line)),
  );
}

/** Returns the element nearest to `from` in a direction [right, down]; undefined where there is none. */
export function nearest(from, elements, [right, down]) {
  const middle = (element) => {
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = middle(from);
  const far = (element) => {
    const [a, b] = middle(element);
    const ahead = (a - x) * right + (b - y) * down;
    return ahead > 1 ? ahead + 2 * (Math.abs((a - x) * down) + Math.abs((b - y) * right)) : Infinity;
  };
  const ranked = [...elements].map((element) => ({ element, far: far(element) })).filter((each) => each.far < Infinity);
  return ranked.sort((one, other) => one.far - other.far)[0]?.element;
}
