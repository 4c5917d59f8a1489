// The panel beside the graph: figures of the selected op, value, box or edge, and the reasons for its layout.

import { facts, h, link, table } from "./elements.js";
import { way } from "./program.js";
import { line } from "./scopes.js";
import { bytes, count, ps, share, signed } from "./units.js";

const MOST = 12;

/** Returns the parts of the panel for a node, or for no selection. */
export function describe(node, view) {
  if (!node) return start(view);
  return { op, box, input, outputs }[node.kind](node, view).filter(Boolean);
}

function start(view) {
  const { program } = view;
  const dearest = [...program.ops].sort((a, b) => b.time + b.moved - a.time - a.moved).slice(0, MOST);
  return [
    h("h3", {}, "How to read the graph"),
    h(
      "p",
      { class: "quiet" },
      "Boxes are the model's modules: click one to open or close it, an op or an input for its numbers. The label of an " +
        "edge is the sharding of the value; an orange edge carries collectives. Arrow keys move, Enter selects, " +
        "Escape closes the surrounding box.",
    ),
    table(
      "Most expensive ops, with their collectives",
      [["op"], ["time", "number"], ["of the step", "number"]],
      dearest.map((each) => [
        link(each.id, () => view.revealOp(each)),
        ps(each.time + each.moved),
        share((each.time + each.moved) / program.step),
      ]),
    ),
  ];
}

function op(node, view) {
  const it = node.of,
    { program } = view;
  const all = it.time + it.moved;
  return [
    h("h3", {}, h("bdi", {}, it.id)),
    facts([
      ["op", it.recomputeOf ? `${it.op}, recomputed` : it.op],
      ["scope", it.scope],
      ["pass", it.phase],
      ["rule", h("code", {}, it.rule)],
      ["attributes", it.attrs === "{}" ? null : h("code", {}, it.attrs)],
      ["loops split", it.split || "none: every device computes the whole op"],
      ["compute time", `${ps(it.time)} (${share(it.time / program.step)} of the step)`],
      ["collectives of its operands", it.moved ? `${ps(it.moved)} (${share(it.moved / program.step)})` : "none"],
      ["total", ps(all)],
    ]),
    change(node, view),
    reasons(it),
    table(
      "Operands",
      [["value"], ["sharding: produced → read"], ["time", "number"], ["bytes", "number"]],
      it.operands.map((read) => [
        link(named(read.value), () => view.revealValue(read.value)),
        h("code", {}, way(read)),
        cost(read, "time", ps, it),
        cost(read, "bytes", bytes, it),
      ]),
    ),
    table(
      "Results",
      [["value"], ["type"], ["sharding"], ["on a device", "number"]],
      it.results.map((value) => [
        h("bdi", {}, value.id),
        value.type,
        h("code", {}, value.sharding),
        bytes(value.bytes),
      ]),
    ),
    ...it.results.map((value) => readers(value, view)),
  ];
}

/** Returns the cost of a read; "shared" where its collectives are counted at another reader. */
function cost(read, key, shown, reader) {
  if (!read.moves.length) return "–";
  const own = read.moves.filter((move) => move.op === reader);
  return own.length ? shown(own.reduce((sum, move) => sum + move[key], 0)) : "shared";
}

function reasons(it) {
  const rows = it.alternatives.map((other) => [
    other.split || "whole",
    signed(other.compute, ps),
    signed(other.reshards, ps),
    signed(other.compute + other.reshards, ps),
  ]);
  const listed = [["option"], ["compute", "number"], ["resharding", "number"], ["total", "number"]];
  return h(
    "section",
    {},
    rows.length
      ? table("Other sharding options", listed, [[`${it.split || "whole"} (chosen)`, "–", "–", "–"], ...rows])
      : h("p", {}, "Every other option needs a neighbouring op to change too."),
    h(
      "p",
      { class: "quiet" },
      "Differences in time with all other decisions unchanged, memory ignored. For the whole step with its neighbours adapted, run ",
      h("code", {}, `shardplan explain PLAN '${it.id}'`),
      ".",
    ),
  );
}

function readers(value, view) {
  if (!value.reads.length) return null;
  const reader = (read) => (read.op ? link(read.op.id, () => view.revealOp(read.op)) : `output ${read.operand}`);
  const listed = value.reads.slice(0, MOST).map((read) => [reader(read), h("code", {}, way(read))]);
  const left = value.reads.length > MOST ? [[`and ${value.reads.length - MOST} more`, ""]] : [];
  return table(`${value.id} is read by`, [["reader"], ["sharding: produced → read"]], [...listed, ...left]);
}

const named = (value) => value.name ?? value.id;

function input(node, view) {
  const value = node.of;
  return [
    h("h3", {}, h("bdi", {}, named(value))),
    facts([
      ["kind", value.kind],
      ["id", h("bdi", {}, value.id)],
      ["type", value.type],
      ["sharding", h("code", {}, value.sharding)],
      ["shape on a device", value.local],
      ["bytes on a device", `${bytes(value.bytes)} (${count(value.bytes)} B)`],
    ]),
    change(node, view),
    readers(value, view),
  ];
}

function box(node, view) {
  const { program } = view;
  const all = node.time + node.moved;
  const parts = [...node.children]
    .filter((each) => each.kind !== "input")
    .sort((a, b) => b.time + b.moved - a.time - a.moved);
  return [
    h("h3", {}, h("bdi", {}, node.name)),
    facts([
      [
        "within",
        line(node)
          .slice(1, -1)
          .map((each) => each.name)
          .reverse()
          .join(" / "),
      ],
      ["ops", count(node.ops)],
      ["compute", `${ps(node.time)} (${share(node.time / program.step)} of the step)`],
      ["communication", `${ps(node.moved)} (${share(node.moved / program.step)})`],
      [
        "uses of values",
        `${count(node.inner.length)} within, ${count(node.entering.length)} from outside, ${count(node.leaving.length)} to outside`,
      ],
    ]),
    change(node, view),
    table(
      "Most expensive inside",
      [["what"], ["time", "number"], ["of the box", "number"]],
      parts
        .slice(0, MOST)
        .map((each) => [
          link(each.name, () => view.reveal(each)),
          ps(each.time + each.moved),
          share((each.time + each.moved) / (all || 1)),
        ]),
    ),
  ];
}

function outputs(_node, view) {
  const rows = view.program.outputs
    .slice(0, 4 * MOST)
    .map((read) => [link(named(read.value), () => view.revealValue(read.value)), h("code", {}, way(read))]);
  const left = view.program.outputs.length - rows.length;
  return [
    h("h3", {}, "Outputs"),
    table("What the program returns", [["value"], ["sharding: produced → returned"]], rows),
    left > 0 ? h("p", {}, `and ${left} more`) : "",
  ];
}

function change(node, view) {
  const found = view.changes?.of(node);
  if (!found) return "";
  return h(
    "p",
    { class: found.ps > 0 ? "slower-text" : "faster-text" },
    `Compared with the other plan: ${signed(found.ps, ps)}`,
    found.was.map((each) => h("div", {}, h("code", {}, each))),
  );
}

/** Returns the parts of the panel for an edge, which stands for one or several uses of values. */
export function describeEdge(group, view) {
  const rows = group.uses
    .slice(0, 4 * MOST)
    .map((read) => [
      link(named(read.value), () => view.revealValue(read.value)),
      read.op ? link(read.op.id, () => view.revealOp(read.op)) : "outputs",
      h("code", {}, way(read)),
      read.moves.length ? ps(read.moves.reduce((sum, move) => sum + (move.first === read ? move.time : 0), 0)) : "–",
    ]);
  const left = group.uses.length - rows.length;
  return [
    h("h3", {}, `${group.uses.length} use${group.uses.length > 1 ? "s" : ""} of values`),
    facts([["collectives", ps(group.time)]]),
    table("Values", [["value"], ["reader"], ["sharding: produced → read"], ["time", "number"]], rows),
    left > 0 ? h("p", {}, `and ${left} more`) : "",
  ];
}
