// The summary of a plan: what is proven, its time and memory, a comparison with standard layouts, and its verdict.

import { bar, facts, h, table } from "./elements.js";
import { bytes, count, flops, share, time } from "./units.js";

const LEAST = { bytes: "receives", memory: "needs" };

/** Returns the mesh as it is written on the command line. */
export const mesh = (sheet) => sheet.mesh.axes.map((axis) => `${axis.name}=${axis.size}`).join(", ");

/** Returns the view of a plan.
 * @param {import("./types").Sheet} sheet */
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

/** Returns the sentence above the cards: what is proven, and how the plan compares with the standard layouts. */
function headline(sheet) {
  const { solver, request } = sheet;
  const limit = bytes(request.memory_limit_bytes);
  if (solver.status === "infeasible") {
    const remedy = solver.reason.includes(" fits: ") ? `; ${solver.reason}` : "";
    return lead(`No plan fits in ${limit} per device: ${limits(solver)}${remedy}.`, "bad");
  }
  if (solver.objective_s === null) return lead(`No plan was found: ${solver.reason}; ${limits(solver)}.`, "bad");
  const least = LEAST[request.objective];
  if (least) return lead(`No plan ${least} less than ${bytes(solver.bound_bytes)} per device.`);
  return lead(`${proof(solver)} ${gain(sheet)}`);
}

/** Returns what is known of other memory limits per device. */
function limits({ least_limit_bytes: enough, least_limit_bound_bytes: least }) {
  const known = enough === null ? "no sufficient limit is known" : `${bytes(enough)} is sufficient`;
  return least ? `${known}, less than ${bytes(least)} is proven impossible` : known;
}

const lead = (words, kind = "") => h("p", { class: `headline ${kind}` }, words);

/** Returns the sentence about the bound: gap = 1 - bound / step. */
function proof({ gap }) {
  if (gap === null) return "No bound is proven.";
  if (gap === 0) return "Proven: no plan within the memory limit is faster.";
  return `Proven: no plan within the memory limit shortens the step by more than ${share(gap)}.`;
}

/** Returns the sentence that compares the plan with the fastest standard layout that fits.
 * @param {import("./types").Sheet} sheet */
function gain({ baselines, cost }) {
  const fitting = baselines.filter((each) => each.fits && each.step_s > 0);
  if (!fitting.length) return baselines.length ? "No standard layout fits in memory." : "";
  const best = fitting.reduce((one, other) => (other.step_s < one.step_s ? other : one));
  const ratio = best.step_s / (cost.step_s || best.step_s);
  if (ratio < 1.005) return `The fastest standard layout that fits, ${best.name}, is as fast.`;
  return `The fastest standard layout that fits, ${best.name}, takes ${ratio.toFixed(2)} times as long.`;
}

/** Returns [title, value, explanation] of every card.
 * @param {import("./types").Sheet} sheet */
function cards({ cost, memory, request, recomputed, hardware, mesh: { axes } }) {
  const { overlap } = cost;
  const devices = axes.reduce((product, axis) => product * axis.size, 1);
  const repeated = Object.keys(recomputed ?? {}).length;
  const collectives = cost.by_collective.reduce((sum, each) => sum + each.count, 0);
  return [
    [
      "Step time",
      time(cost.step_s),
      `${share(cost.compute_s / cost.step_s)} compute, ${share(cost.communication_s / cost.step_s)} communication`,
    ],
    cost.interval && [
      "Expected between",
      `${time(cost.interval.low_s)} and ${time(cost.interval.high_s)}`,
      `${time(cost.interval.out_of_range_s)} in ops outside the measured shapes`,
    ],
    cost.mfu && [
      "Model FLOPs utilisation",
      share(cost.mfu),
      `${flops(cost.model_flops)} per step on ${devices} × ${hardware.name}`,
    ],
    [
      "Peak memory per device",
      bytes(memory.peak_bytes),
      `${share(memory.peak_bytes / request.memory_limit_bytes)} of the limit, ${bytes(request.memory_limit_bytes)}`,
    ],
    ["Received per device", bytes(cost.collective_bytes), `in ${count(collectives)} collectives`],
    overlap &&
      overlap.scheduled_s < cost.step_s && [
        "Step time with overlap",
        time(overlap.scheduled_s),
        `collectives run during compute; at least ${time(overlap.lower_bound_s)}` +
          (hardware.overlap ? `; ${time(overlap.step_s)} with the profile's overlap` : ""),
      ],
    repeated && ["Recomputation", time(cost.recompute_s), `${count(repeated)} ops run twice to save memory`],
  ].flatMap((each) => (each ? [each] : []));
}

const figures = (sheet) =>
  h(
    "div",
    { class: "cards" },
    cards(sheet).map(([name, value, more]) =>
      h(
        "div",
        { class: "card" },
        h("div", { class: "what" }, name),
        h("div", { class: "value" }, value),
        h("div", { class: "quiet" }, more),
      ),
    ),
  );

/** Returns what blocks a smaller limit of an infeasible plan: the time of its peak, and the tensors in memory then. */
function nothing({ blocked }) {
  if (!blocked) return "";
  const rows = blocked.largest.map((each) => [h("bdi", {}, each.value), each.kind, each.producer, bytes(each.bytes)]);
  return h(
    "section",
    {},
    h("h3", {}, "What blocks a smaller limit"),
    h(
      "p",
      {},
      "At the smallest limit known to be sufficient, ",
      bytes(blocked.limit_bytes),
      ", the peak is reached while computing ",
      h("code", {}, blocked.at),
      ".",
    ),
    table("The largest tensors in memory then", [["value"], ["kind"], ["computed by"], ["per device", "number"]], rows),
  );
}

/** Returns the table of the plan and the standard layouts, priced by the same cost model. */
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
    each.fits ? "fits" : "over the limit",
  ]);
  return table(
    `Standard layouts, priced by the same cost model; the limit is ${bytes(request.memory_limit_bytes)} per device`,
    [["layout"], ["step", "number"], ["relative", "number"], ["received", "number"], ["peak", "number"], [""]],
    rows,
    { class: "layouts" },
  );
}

/** Returns the lower bound; where the plan minimises bytes or memory, also the number of bytes. */
function proven(solver, request) {
  if (!LEAST[request.objective]) return [["lower bound", time(solver.bound_s)]];
  return [
    [`bytes ${request.objective === "bytes" ? "received" : "held"}`, bytes(solver.objective_bytes)],
    ["lower bound", bytes(solver.bound_bytes)],
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
      ...proven(solver, request),
      ["gap", `${share(solver.gap)} (requested ${share(request.gap)})`],
      ["stopped because", solver.reason],
      ["solved in", time(solver.wall_s)],
      ["reproducible", solver.reproducible ? "yes: the same input gives the same plan" : "no: stopped by a time limit"],
      ["one more MiB per device", price ? `saves at most ${time(price / 1024)}` : "saves nothing"],
      [
        "repeated layers",
        folding &&
          `${folding.layers.join(", ")} planned as one${folding.unfolded ? ", then one by one" : ""}: ${count(folding.variables)} of ${count(folding.total_variables)} variables`,
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
      h(
        "p",
        {},
        "Not run yet. Run ",
        h("code", {}, "shardplan validate PLAN"),
        " to compare it with the unsharded model.",
      ),
    );
  const words = {
    equal: "Equal to the unsharded model",
    different: "Different from the unsharded model",
    structural: "Shardings and sizes agree; the numbers were not run",
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
        `${found.devices} devices (${found.backend}, ${found.precision})${found.shrunk ? ", with smaller sizes" : ""}`,
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
      ["exported by", Object.values(graph.producer ?? {}).join(" ")],
      ["mesh", mesh(sheet)],
      ["hardware", hardware.name],
      [
        "request",
        `minimise ${request.objective}, at most ${bytes(request.memory_limit_bytes)} per device${request.deterministic ? ", deterministic" : ""}, recompute ${request.recompute ?? "none"}, seed ${request.seed}`,
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
