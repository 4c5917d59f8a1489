// The tree of a program's scopes: boxes, with ops, graph inputs and the outputs as leaves.
//
// Forward, backward and update pass have separate boxes, because a scope has a part in each. A box with a single box in
// it is merged with that box. A box with more than CROWD children is cut into runs of neighbours in program order, so
// that the picture of any box stays small. Every use of a value is an edge between leaves: it is in `inner` of the
// lowest box around both leaves, and in `entering` or `leaving` of the boxes in between.

const CROWD = 60;
const RUN = 40;
const SEEN = 34;
const ALIKE = 0.9;
const GOOD = 0.1;

/** Returns the root box of a program, and the leaves: of ops by index, of inputs by value.
 * @param {import("./types").Program} program */
export function tree(program) {
  const root = box("all", null, "");
  const phases = new Set(program.ops.map((op) => op.phase));
  /** @type {{ops: import("./types").Node[], inputs: Map<any, import("./types").Node>, outputs: any}} */
  const leaves = { ops: [], inputs: new Map(), outputs: null };
  for (const op of program.ops) {
    const home = within(root, [...(phases.size > 1 ? [op.phase] : []), ...op.scope.split(/[./]/).filter(Boolean)]);
    for (const read of op.operands) {
      if (read.value.kind && !leaves.inputs.has(read.value))
        leaves.inputs.set(read.value, leaf("input", read.value, home));
    }
    leaves.ops.push(leaf("op", op, home));
  }
  for (const value of program.inputs)
    if (!leaves.inputs.has(value)) leaves.inputs.set(value, leaf("input", value, root));
  leaves.outputs = leaf("outputs", { id: "outputs" }, root);
  for (const child of boxesIn(root)) joined(child);
  runs(root);
  connect(program, leaves);
  weigh(root);
  return { root, leaves };
}

/** @returns {import("./types").Node} */
function box(name, parent, key) {
  return {
    kind: "box",
    name,
    parent,
    key,
    children: [],
    named: new Map(),
    inner: [],
    entering: [],
    leaving: [],
    open: false,
    time: 0,
    moved: 0,
    ops: 0,
    of: null,
  };
}

/** @returns {import("./types").Node} */
function leaf(kind, of, home) {
  const made = Object.assign(box(of.name ?? of.id, home, `${kind}:${of.id}`), { kind, of });
  home.children.push(made);
  return made;
}

function within(root, path) {
  let at = root;
  for (const name of path) {
    if (!at.named.has(name)) {
      const made = box(
        /^\d+$/.test(name) && at.parent ? `${at.name.split(".").at(-1)}.${name}` : name,
        at,
        `${at.key}/${name}`,
      );
      at.named.set(name, made);
      at.children.push(made);
    }
    at = at.named.get(name);
  }
  return at;
}

/** Returns the boxes directly in a box.
 * @param {import("./types").Node} box */
export const boxesIn = (box) => box.children.filter((child) => child.kind === "box");

function joined(at) {
  while (at.children.length === 1 && at.children[0].kind === "box") {
    const [only] = at.children;
    at.name = `${at.name}.${only.name}`;
    at.children = only.children;
    at.children.forEach((child) => {
      child.parent = at;
    });
  }
  for (const child of boxesIn(at)) joined(child);
}

function runs(at) {
  for (const child of boxesIn(at)) runs(child);
  const counted = at.children.filter((child) => child.kind !== "input").length;
  if (counted <= CROWD) return;
  const size = Math.ceil(counted / Math.ceil(counted / RUN));
  /** @type {import("./types").Node[][]} */
  const groups = [];
  let held = size;
  for (const child of at.children) {
    const isInput = child.kind === "input";
    if (!groups.length || (!isInput && held === size)) {
      groups.push([]);
      held = 0;
    }
    groups[groups.length - 1].push(child);
    held += isInput ? 0 : 1;
  }
  at.children = groups.map((children, k) => {
    const named = children.filter((child) => child.kind !== "input");
    const made = box(`${named[0].name} … ${named[named.length - 1].name}`, at, `${at.key}/${k}…`);
    children.forEach((child) => {
      child.parent = made;
    });
    return Object.assign(made, { children });
  });
}

/** Returns a node and the boxes around it, from the inside out. */
export function line(node) {
  const found = [];
  for (let at = node; at; at = at.parent) found.push(at);
  return found;
}

/** Returns the child of `home` that contains a node. */
export function under(node, home) {
  let at = node;
  while (at.parent !== home) at = at.parent;
  return at;
}

function connect(program, leaves) {
  const reads = [...program.ops.flatMap((op) => op.operands), ...program.outputs];
  for (const read of reads) {
    const { maker } = read.value;
    const source = maker ? leaves.ops[maker.index] : leaves.inputs.get(read.value);
    const target = read.op ? leaves.ops[read.op.index] : leaves.outputs;
    const time = read.moves.reduce((sum, move) => sum + (move.first === read ? move.time : 0), 0);
    const edge = { read, source, target, time };
    if (target === leaves.outputs) target.moved += time;
    const around = new Set(line(source));
    const meet = line(target).find((each) => around.has(each));
    meet.inner.push(edge);
    for (let at = source.parent; at !== meet; at = at.parent) at.leaving.push(Object.assign({}, edge, { meet }));
    for (let at = target.parent; at !== meet; at = at.parent) at.entering.push(Object.assign({}, edge, { meet }));
  }
}

/** Opens the first box that takes a good part of the step, then repeatedly the box in it that takes the most time (the
 * first of several with about as much), while the picture stays readable: at most SEEN nodes, and not too wide as
 * `isReadable()` tells. */
export function openCostliest(root, isReadable) {
  const cost = (box) => box.time + box.moved;
  let closed = boxesIn(root)
    .filter((box) => cost(box) >= GOOD * cost(root))
    .slice(0, 1);
  let seen = root.children.length;
  for (;;) {
    closed = closed.filter((box) => box.children.length > 1 && seen + box.children.length - 1 <= SEEN);
    const most = Math.max(...closed.map(cost));
    const next = closed.find((box) => cost(box) >= ALIKE * most);
    if (!next) return;
    closed = closed.filter((box) => box !== next);
    next.open = true;
    if (isReadable()) {
      seen += next.children.length - 1;
      closed = [...boxesIn(next), ...closed];
    } else next.open = false;
  }
}

/** Returns a node and all nodes in it. */
export function nodesIn(node) {
  return [node, ...(node.children ?? []).flatMap(nodesIn)];
}

/** Sets the times and numbers of ops of a node to the sums over its children. */
function weigh(at) {
  if (at.kind === "op") return Object.assign(at, { time: at.of.time, moved: at.of.moved, ops: 1 });
  if (at.kind !== "box") return Object.assign(at, { ops: 0 });
  const parts = at.children.map(weigh);
  const sum = (key) => parts.reduce((total, part) => total + part[key], 0);
  return Object.assign(at, { time: sum("time"), moved: sum("moved"), ops: sum("ops") });
}
