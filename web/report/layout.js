// Positions of the nodes in open boxes. dagre (layers, few crossings) lays out each box by itself, inner boxes first, so
// that opening a box moves only its surroundings. Edges from and to the outside end at ports.

import { layout as arrange, graphlib } from "@dagrejs/dagre";
import { way } from "./program.js";
import { under } from "./scopes.js";

export const TITLE = 26;
const PAD = 12;
const SIZES = { op: [176, 42], input: [164, 30], outputs: [110, 30], box: [196, 52], port: [120, 22] };
const LETTER = 6.1;
export const LINE = 13;
const LONGEST = 40;

/** Returns the layout of a box: its size, its parts with their centres, and its edges with points and labels. */
export function layout(box) {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 16, edgesep: 10, ranksep: 22, marginx: PAD, marginy: PAD });
  const parts = box.children.map((node) => {
    const inside = node.kind === "box" && node.open ? layout(node) : null;
    const [width, height] = inside ? [inside.width, inside.height] : SIZES[node.kind];
    return { node, inside, width, height, key: node.key };
  });
  const groups = [...bundles(box), ...ports(box, parts)];
  for (const part of parts) graph.setNode(part.key, { width: part.width, height: part.height });
  for (const group of groups) {
    const [width, height] = [
      Math.max(...group.lines.map((line) => line.length)) * LETTER + 8,
      group.lines.length * LINE,
    ];
    graph.setEdge(group.from, group.to, { width, height, labelpos: "c", weight: Math.min(group.uses.length, 4) });
  }
  arrange(graph);
  for (const part of parts) Object.assign(part, place(graph.node(part.key)));
  for (const group of groups) Object.assign(group, route(graph.edge(group.from, group.to)));
  const { width, height } = graph.graph();
  const wide = Math.max(width, box.name.length * 7.5 + 60);
  return { box, parts, groups, width: wide, height: height + TITLE };
}

const place = ({ x, y }) => ({ x, y: y + TITLE });
const route = ({ points, x, y, width, height }) => ({ points: points.map(place), x, y: y + TITLE, width, height });

/** Returns one edge for all uses of values between two parts of a box. */
function bundles(box) {
  return bundled(box.inner, (edge) => [under(edge.source, box).key, under(edge.target, box).key]);
}

/** Adds a port to `parts` for every pair of an inner part and an outer end, and returns the edges between them. The
 * outer end is named after the child of the lowest box around both ends that contains it. A port per pair keeps the edges
 * short. */
function ports(box, parts) {
  const ends = new Map();
  const port = (edge, leaf, inner, way) => {
    const leads = under(leaf, edge.meet),
      key = `${way} ${leads.key} ${inner}`;
    if (!ends.has(key)) ends.set(key, { node: { kind: "port", name: leads.name, leads, way, key }, key });
    return key;
  };
  const coming = bundled(box.entering, (edge) => {
    const inner = under(edge.target, box).key;
    return [port(edge, edge.source, inner, "from"), inner];
  });
  const going = bundled(box.leaving, (edge) => {
    const inner = under(edge.source, box).key;
    return [inner, port(edge, edge.target, inner, "to")];
  });
  const [width, height] = SIZES.port;
  for (const { node, key } of ends.values()) parts.push({ node, key, inside: null, width, height });
  return [...coming, ...going];
}

function bundled(edges, ends) {
  const found = new Map();
  for (const edge of edges) {
    const [from, to] = ends(edge);
    const key = JSON.stringify([from, to]);
    if (!found.has(key)) found.set(key, { from, to, uses: [], time: 0 });
    const group = found.get(key);
    group.uses.push(edge.read);
    group.time += edge.time;
  }
  return [...found.values()].map((group) => ({ ...group, lines: lines(group.uses) }));
}

/** Returns the label of an edge: the sharding and the collectives of its uses; of several, the most frequent. */
function lines(uses) {
  const ways = new Map();
  for (const use of uses) ways.set(way(use), (ways.get(way(use)) ?? 0) + 1);
  const [[most, times]] = [...ways].sort((one, other) => other[1] - one[1]);
  const [first, ...rest] = most.split(" → ");
  const listed = [`${times > 1 ? `${times} × ` : ""}${first}`];
  if (rest.length) listed.push(`→ ${rest.join(" → ")}`);
  if (ways.size > 1) listed.push(`and ${uses.length - times} otherwise`);
  return listed.map((line) => cut(line, LONGEST));
}

/** Shortens text to a number of letters. */
export function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
