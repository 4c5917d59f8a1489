// A plan in figures: what is proven, what it costs and holds, how it compares with named layouts, whether it was run.

import { bar, facts, h, table } from "./elements.js";
import { bytes, count, share, time } from "./units.js";

const LEAST = { bytes: "receives", memory: "holds at most" };

/** The mesh as it is written on the command line. */
export const mesh = (sheet) => sheet.mesh.axes.map((axis) => `${axis.name}=${axis.size}`).join(", ");

/** The page of a plan. */
export function summaryView(sheet) {
  return h(
    "div",
    { class: "summary" },
    headline(sheet),
    sheet.program ? figures(sheet) : nothing(sheet),
    layouts(sheet),
    h("div", { class: "columns" }, certificate(sheet), verdict(sheet.verdict), provenance(sheet)),
  );
}

function headline({ solver, request }) {
  const limit = bytes(request.memory_limit_bytes);
  if (solver.status === "infeasible") {
    const enough =
      solver.least_limit_bytes === null
        ? "no limit is known to be enough"
        : `${bytes(solver.least_limit_bytes)} is known to be enough`;
    return h(
      "p",
      { class: "headline bad" },
      `Nothing fits ${limit} a device: ${enough}, less than ${bytes(solver.least_limit_bound_bytes ?? 0)} cannot be.`,
    );
  }
  if (solver.objective_s === null) return h("p", { class: "headline bad" }, `No plan was found: ${solver.reason}.`);
  const least = LEAST[request.objective];
  if (least) {
    return h(
      "p",
      { class: "headline" },
      `A device ${least} ${bytes(solver.objective_bytes)}, and in no plan less than ${bytes(solver.bound_bytes)} ` +
        `(gap ${share(solver.gap)}). A step takes ${time(solver.objective_s)} within ${limit} a device.`,
    );
  }
  return h(
    "p",
    { class: "headline" },
    `A step takes ${time(solver.objective_s)} within ${limit} a device, ` +
      `and in no plan less than ${time(solver.bound_s)} (gap ${share(solver.gap)}).`,
  );
}

function figures({ cost, memory, solver, request, recomputed, hardware }) {
  const beside = cost.overlap;
  const cards = [
    [
      "Step",
      time(cost.step_s),
      `${share(cost.compute_s / cost.step_s)} compute, ${share(cost.communication_s / cost.step_s)} communication`,
    ],
    [
      "Proven bound",
      LEAST[request.objective] ? bytes(solver.bound_bytes) : time(solver.bound_s),
      `gap ${share(solver.gap)}, ${solver.status}`,
    ],
    [
      "Peak memory",
      bytes(memory.peak_bytes),
      `${share(memory.peak_bytes / request.memory_limit_bytes)} of ${bytes(request.memory_limit_bytes)} a device`,
    ],
    [
      "Received",
      bytes(cost.collective_bytes),
      `a device, in ${count(cost.by_collective.reduce((sum, each) => sum + each.count, 0))} collectives`,
    ],
    beside && [
      "Collectives beside ops",
      time(beside.scheduled_s),
      `by schedule; in no order below ${time(beside.floor_s)}` +
        (hardware.overlap ? `; counted ${time(beside.step_s)}` : ""),
    ],
    Object.keys(recomputed ?? {}).length && [
      "Done again",
      time(cost.recompute_s),
      `${count(Object.keys(recomputed).length)} ops, to hold less`,
    ],
  ];
  return h(
    "div",
    { class: "cards" },
    cards
      .filter(Boolean)
      .map(([name, value, more]) =>
        h(
          "div",
          { class: "card" },
          h("div", { class: "what" }, name),
          h("div", { class: "value" }, value),
          h("div", { class: "quiet" }, more),
        ),
      ),
  );
}

/** Of an infeasible plan: the moment and the tensors that block a smaller limit. */
function nothing({ blocked }) {
  if (!blocked) return "";
  const rows = blocked.largest.map((each) => [h("bdi", {}, each.value), each.kind, each.by, bytes(each.bytes)]);
  return h(
    "section",
    {},
    h("h3", {}, "What blocks a smaller limit"),
    h(
      "p",
      {},
      "At the least limit known to be enough, ",
      bytes(blocked.limit_bytes),
      ", the peak is reached while ",
      h("code", {}, blocked.at),
      " is made. It is filled by",
    ),
    table("The largest tensors at that moment", [["value"], ["kind"], ["made by"], ["on a device", "number"]], rows),
  );
}

/** The plan beside the named layouts, under the same evaluator. */
export function layouts({ baselines, cost, memory, request, program }) {
  const own = program && {
    name: "this plan",
    step_s: cost.step_s,
    collective_bytes: cost.collective_bytes,
    peak_bytes: memory.peak_bytes,
    fits: true,
  };
  const all = own ? [own, ...baselines] : baselines;
  if (!all.length) return "";
  const [slowest, fullest] = [
    Math.max(...all.map((each) => each.step_s)),
    Math.max(...all.map((each) => each.peak_bytes)),
  ];
  const rows = all.map((each) => [
    each === own ? h("strong", {}, each.name) : each.name,
    bar(each.step_s / slowest, time(each.step_s), each === own ? "own" : ""),
    own ? `${(each.step_s / (own.step_s || 1)).toFixed(2)} ×` : "–",
    bytes(each.collective_bytes),
    bar(each.peak_bytes / fullest, bytes(each.peak_bytes), each.fits ? "" : "over"),
    each.fits ? "fits" : "too much",
  ]);
  return table(
    `Named layouts under the same evaluator; the limit is ${bytes(request.memory_limit_bytes)} a device`,
    [["layout"], ["step", "number"], ["of the plan's", "number"], ["received", "number"], ["peak", "number"], [""]],
    rows,
    { class: "layouts" },
  );
}

/** What was asked for at its least, and the bound on it. */
function proven(solver, request) {
  if (!LEAST[request.objective]) return [["no plan below", time(solver.bound_s)]];
  return [
    [`bytes ${request.objective === "bytes" ? "received" : "held"}`, bytes(solver.objective_bytes)],
    ["no plan below", bytes(solver.bound_bytes)],
  ];
}

function certificate({ solver, request }) {
  const folding = solver.folding;
  const price = solver.memory_price_s_per_gib;
  return h(
    "section",
    {},
    h("h3", {}, "Certificate"),
    facts([
      ["status", solver.status],
      ["step", time(solver.objective_s)],
      ...proven(solver, request),
      ["gap", `${share(solver.gap)} (asked: ${share(request.gap)})`],
      ["stopped", solver.reason],
      ["solved in", time(solver.wall_s)],
      ["same input, same bytes", solver.reproducible ? "yes" : "no: a clock has stopped it"],
      ["a further GiB a device", price ? `would save about ${time(price)}` : "saves nothing"],
      [
        "equal layers",
        folding &&
          `${folding.layers.join(", ")} planned alike${folding.unfolded ? ", then apart" : ""}: ${count(folding.variables)} decisions for ${count(folding.of)}`,
      ],
    ]),
  );
}

function verdict(found) {
  if (!found)
    return h(
      "section",
      {},
      h("h3", {}, "Verdict"),
      h("p", {}, "Not run yet: ", h("code", {}, "shardplan validate PLAN"), " runs it beside the unsharded model."),
    );
  const words = {
    equal: "Equal to the unsharded model",
    different: "Different from the unsharded model",
    structural: "Layouts and sizes agree; numbers were not run",
  };
  const numbers =
    found.counted_bytes === null
      ? []
      : [
          ["bytes received", `counted ${count(found.counted_bytes)}, predicted ${count(found.predicted_bytes)}`],
          ["peak bytes", `counted ${count(found.counted_peak_bytes)}, predicted ${count(found.predicted_peak_bytes)}`],
        ];
  const at = found.difference;
  return h(
    "section",
    {},
    h("h3", {}, "Verdict"),
    h("p", { class: found.verdict === "different" ? "bad" : "good" }, words[found.verdict]),
    facts([
      [
        "run on",
        `${found.devices} devices (${found.backend}, ${found.precision})${found.shrunk ? ", sizes shrunk alike" : ""}`,
      ],
      ["largest relative error", found.max_relative_error === null ? null : found.max_relative_error.toExponential(1)],
      ...numbers,
      ["not run", found.not_run.join(", ")],
      [
        "first difference",
        at && `${at.what} of ${at.value}, ${at.done}, device ${at.device}: got ${at.got}, wanted ${at.wanted}`,
      ],
    ]),
  );
}

function provenance(sheet) {
  const { graph, hardware, request, solver } = sheet;
  return h(
    "section",
    {},
    h("h3", {}, "Provenance"),
    facts([
      ["plan", h("code", { class: "digest" }, sheet.id)],
      ["graph", [h("bdi", {}, graph.name), ` (${count(graph.ops)} ops, ${count(graph.inputs)} inputs)`]],
      ["digest", h("code", { class: "digest" }, graph.digest)],
      ["made by", Object.values(graph.producer ?? {}).join(" ")],
      ["mesh", mesh(sheet)],
      ["hardware", hardware.name],
      [
        "asked",
        `${request.objective}, at most ${bytes(request.memory_limit_bytes)} a device${request.deterministic ? ", deterministic" : ""}, recompute ${request.recompute ?? "none"}, seed ${request.seed}`,
      ],
      [
        "versions",
        Object.entries(solver.versions)
          .map(([name, number]) => `${name.replace("_", " ")} ${number}`)
          .join(", "),
      ],
    ]),
  );
}
