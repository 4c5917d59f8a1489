// Turns the columns of a planned program into linked objects: values, ops, collectives.

/** Returns the ops, values and collectives of a plan's program, with producers and readers; null without a program.
 * @param {import("./types").Sheet} sheet
 * @returns {import("./types").Program | null} */
export function readProgram(sheet) {
  const drawn = sheet.program;
  if (!drawn) return null;
  const word = (k) => drawn.strings[k];
  const values = valuesOf(drawn.values, word);
  const moves = drawn.collectives.collective.map((kind, k) => ({
    index: k,
    collective: word(kind),
    axes: word(drawn.collectives.axes[k]),
    sharding: word(drawn.collectives.sharding[k]),
    time: drawn.collectives.time_ps[k],
    bytes: drawn.collectives.bytes[k],
    value: null,
    op: null,
  }));
  const ops = drawn.ops.id.map((id, k) => opOf(drawn.ops, id, k, word));
  /** @param {number[]} entry */
  const read = ([value, sharding, ...path], op, operand) =>
    join({ value: values[value], sharding: word(sharding), moves: path.map((each) => moves[each]), op, operand });
  for (const op of ops) {
    op.results = op.results.map((k) => Object.assign(values[k], { maker: op }));
    op.operands = op.operands.map((entry, operand) => read(entry, op, operand));
    op.moved = op.operands
      .flatMap((each) => each.moves)
      .filter((move) => move.op === op)
      .reduce((sum, m) => sum + m.time, 0);
  }
  const outputs = drawn.outputs.map((entry, number) => read(entry, null, number));
  const step = [...ops, ...moves].reduce((sum, each) => sum + each.time, 0);
  return { values, ops, moves, outputs, step, schedule: drawn.schedule, inputs: values.filter((each) => each.kind) };
}

function valuesOf(columns, word) {
  return columns.id.map((id, k) => ({
    index: k,
    id,
    kind: k < columns.kind.length ? word(columns.kind[k]) : null,
    name: columns.name[k] ?? null,
    type: word(columns.type[k]),
    sharding: word(columns.sharding[k]),
    local: word(columns.local[k]),
    bytes: columns.bytes[k],
    maker: null,
    reads: [],
  }));
}

function opOf(columns, id, k, word) {
  return {
    index: k,
    id,
    op: word(columns.op[k]),
    scope: word(columns.scope[k]),
    phase: word(columns.phase[k]),
    rule: word(columns.rule[k]),
    attrs: word(columns.attrs[k]),
    split: word(columns.split[k]),
    recomputeOf: columns.recompute_of[k],
    time: columns.time_ps[k],
    results: columns.results[k],
    operands: columns.operands[k],
    moved: 0,
    alternatives: columns.alternatives[k].map(([split, compute, reshards]) => ({
      split: word(split),
      compute,
      reshards,
    })),
  };
}

/** Links a read with its value and collectives. A collective belongs to the first op that reads its result, so that
 * every time is counted once. */
function join(read) {
  read.value.reads.push(read);
  for (const move of read.moves) {
    move.value ??= read.value;
    if (move.first === undefined) Object.assign(move, { first: read, op: read.op });
  }
  return read;
}

/** Returns how a value reaches a reader: "[dp ·] → all_gather tp → [dp tp]". */
export function way(read) {
  const steps = read.moves.map((move) => ` → ${move.collective} ${move.axes} → ${move.sharding}`);
  return read.value.sharding + steps.join("");
}
