// The answer to a capacity question: the devices to choose, charts of time and cost against devices, and every
// candidate with its outcome.

import { bar, h, table } from "./elements.js";
import { scatter } from "./scatter.js";
import { bytes, count, share, time } from "./units.js";

const MOST = 200;
const EXCLUDED = {
  memory: () => "does not fit in memory, whatever the sharding",
  infeasible: (by) => `no plan fits in memory, as none fits on ${by}, which allows more shardings`,
  bound: (by) => `proven no better than ${by}`,
  time: () => "not planned: the time ran out",
};

/** Returns the view of a capacity document.
 * @param {import("./types").Capacity} found */
export function capacityView(found) {
  const candidates = found.candidates.map((one) => point(one, found));
  const frontier = new Set(found.frontier.map(name));
  for (const one of candidates) one.isBest = frontier.has(name(one));
  return h(
    "div",
    { class: "report" },
    h(
      "header",
      {},
      h(
        "h1",
        {},
        h("bdi", {}, found.graphs.map((graph) => graph.name).join(", ")),
        h("small", {}, ` capacity on ${found.hardware.map((offer) => offer.name).join(", ")}`),
      ),
    ),
    h("p", { class: "headline" }, lead(found)),
    h("div", { class: "cards" }, best(found).map(card(found))),
    scatter(candidates, [
      { title: timeTitle(found), of: (one) => one.seconds, shown: time },
      { title: costTitle(found), of: (one) => one.price, shown: money },
    ]),
    listed("The frontier: no candidate has fewer devices, lower cost and a faster step", candidates, found, true),
    listed("All candidates", candidates, found, false),
  );
}

const name = (one) => `${one.graph} ${one.hardware} ${one.mesh}`;
const tokens = (found) => found.unit === "token";
const timeTitle = (found) => (found.graphs.length > 1 ? "Time per token" : "Step time");
const costTitle = ({ unit, cost_unit: what }) =>
  `Cost of a ${unit === "token" ? "million tokens" : unit}${what === "price" ? "" : " in device-seconds"}`;
const money = (cost) => (cost === undefined ? "–" : String(Number(cost.toPrecision(3))));

/** Returns a candidate with its time and cost; for one that was not planned these are lower bounds.
 * @param {import("./types").Candidate} one
 * @param {import("./types").Capacity} found */
function point(one, found) {
  const graph = found.graphs[one.graph];
  const hour = found.hardware.find((offer) => offer.name === one.hardware)?.price_per_device_hour ?? null;
  const step = one.objective_s ?? one.initial_bound_s;
  const unit = step / (tokens(found) ? (graph.tokens ?? 1) : 1);
  const price = one.devices * unit * (hour === null ? 1 : hour / 3600) * (tokens(found) ? 1e6 : 1);
  const doesNotFit = one.skip_reason === "memory" || one.skip_reason === "infeasible" || one.status === "infeasible";
  const seconds = found.graphs.length > 1 ? unit : step;
  const made = { ...one, seconds, price, isPlanned: Boolean(one.objective_s), doesNotFit, isBest: false };
  return { ...made, says: says(made, found.graphs.length > 1 ? `${graph.name}, ` : "") };
}

/** Returns everything known about a candidate as text. */
function says(one, graph) {
  const where = `${graph}${one.mesh} on ${count(one.devices)} × ${one.hardware}`;
  const least = `step at least ${time(one.initial_bound_s)}, memory at least ${bytes(one.initial_bound_bytes)}`;
  if (!one.isPlanned) return `${where}: ${outcome(one)} (${least})`;
  const utilisation = one.mfu ? `, MFU ${share(one.mfu)}` : "";
  return `${where}: step ${time(one.objective_s)}, cost ${money(one.price)}${utilisation}, ${bytes(one.peak_bytes)} per device`;
}

const outcome = (one) =>
  one.skip_reason ? (EXCLUDED[one.skip_reason]?.(one.dominated_by) ?? one.skip_reason) : one.status;

function lead(found) {
  const excluded = found.candidates.length - found.planned;
  const rest = excluded ? ` Excluded by proven bounds: ${count(excluded)}.` : "";
  const left = found.complete ? rest : ` The time ran out before all were examined.`;
  return `${count(found.candidates.length)} combinations of devices and mesh, ${count(found.planned)} planned.${left}`;
}

const best = (found) => [
  ["Fewest devices", found.smallest_feasible],
  ["Cheapest", found.cheapest],
  ["Fastest", found.fastest],
];

const card =
  (found) =>
  /** @param {any[]} of */
  ([words, one]) => {
    const cost = one && money(point(one, found).price);
    return h(
      "div",
      { class: "card" },
      h("div", { class: "what" }, words),
      h("div", { class: "value" }, one ? `${count(one.devices)} × ${one.hardware}` : "none fits"),
      one && h("div", { class: "quiet" }, `mesh ${one.mesh}: step ${time(one.objective_s)}, cost ${cost}`),
      one?.mfu && h("div", { class: "quiet" }, `MFU ${share(one.mfu)}`),
    );
  };

function listed(title, candidates, found, isFrontier) {
  const shown = candidates.filter((one) => one.isBest || !isFrontier);
  const slowest = Math.max(0, ...shown.map((one) => one.objective_s ?? 0));
  const several = found.graphs.length > 1;
  const rows = shown
    .slice(0, MOST)
    .map((one) => [
      several ? `${one.mesh} (${found.graphs[one.graph].name})` : one.mesh,
      one.hardware,
      String(one.devices),
      one.isPlanned ? bar(one.objective_s / slowest, time(one.objective_s)) : `≥ ${time(one.initial_bound_s)}`,
      one.isPlanned ? money(one.price) : `≥ ${money(one.price)}`,
      share(one.mfu),
      one.peak_bytes ? bytes(one.peak_bytes) : `≥ ${bytes(one.initial_bound_bytes)}`,
      share(one.gap),
      outcome(one),
    ]);
  if (shown.length > MOST) rows.push([`and ${count(shown.length - MOST)} more`, ...Array(8).fill("")]);
  const numbers = [costTitle(found).toLowerCase(), "MFU", "memory per device", "gap"];
  return table(
    title,
    [
      ["mesh"],
      ["hardware"],
      ["devices", "number"],
      ["step", "number"],
      ...numbers.map((each) => [each, "number"]),
      [""],
    ],
    rows,
    { class: "candidates" },
  );
}
