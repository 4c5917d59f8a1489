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
  const named = new Map(candidates.map((one) => [name(one), one]));
  const frontier = found.frontier.map((one) => named.get(name(one)) ?? point(one, found));
  for (const one of frontier) one.isBest = true;
  return h(
    "div",
    { class: "report" },
    h(
      "header",
      {},
      h(
        "h1",
        {},
        h("bdi", {}, [...new Set(found.graphs.map((graph) => graph.name))].join(", ")),
        h("small", {}, ` capacity on ${found.hardware.map((offer) => offer.name).join(", ")}`),
      ),
    ),
    h("p", { class: "headline" }, lead(found)),
    h("div", { class: "cards" }, best(found).map(card(found))),
    scatter(candidates, [
      { title: timeTitle(found), of: (one) => one.seconds, shown: time },
      { title: costTitle(found), of: (one) => one.price, shown: money },
    ]),
    listed("The frontier: no candidate has fewer devices, lower cost and a faster step", frontier, found, true),
    runs(frontier, found),
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
  const step = one.step_s ?? one.initial_bound_s;
  const unit = step / (tokens(found) ? (graph.tokens ?? 1) : 1);
  const price = one.devices * unit * (hour === null ? 1 : hour / 3600) * (tokens(found) ? 1e6 : 1);
  const doesNotFit = one.skip_reason === "memory" || one.skip_reason === "infeasible" || one.status === "infeasible";
  const seconds = found.graphs.length > 1 ? unit : step;
  const made = { ...one, seconds, price, isPlanned: Boolean(one.step_s), doesNotFit, isBest: false };
  return { ...made, says: says(made, found.graphs.length > 1 ? `${graph.name}, ` : "") };
}

/** Returns everything known about a candidate as text. */
function says(one, graph) {
  const where = `${graph}${one.mesh} on ${count(one.devices)} × ${one.hardware}`;
  const least = `step at least ${time(one.initial_bound_s)}, memory at least ${bytes(one.initial_bound_bytes)}`;
  if (!one.isPlanned) return `${where}: ${outcome(one)} (${least})`;
  const utilisation = one.mfu ? `, MFU ${share(one.mfu)}` : "";
  return `${where}: step ${time(one.step_s)}${overlap(one)}, cost ${money(one.price)}${utilisation}, ${bytes(one.peak_bytes)} per device`;
}

/** Returns what a step would be without overlap, or nothing where none counts. */
const overlap = (one) => (one.step_s === one.objective_s ? "" : ` (without overlap ${time(one.objective_s)})`);

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
      one && h("div", { class: "quiet" }, `mesh ${one.mesh}: step ${time(one.step_s)}, cost ${cost}`),
      one &&
        isNumber(one.low_s) &&
        h("div", { class: "quiet" }, `expected between ${time(one.low_s)} and ${time(one.high_s)}`),
      one?.mfu && h("div", { class: "quiet" }, `MFU ${share(one.mfu)}`),
    );
  };

function listed(title, candidates, found, isFrontier) {
  const slowest = Math.max(0, ...candidates.map((one) => one.step_s ?? 0));
  const step = (one) =>
    one.isPlanned ? bar(one.step_s / slowest, time(one.step_s)) : `≥ ${time(one.initial_bound_s)}`;
  const price = (one) => (one.isPlanned ? money(one.price) : `≥ ${money(one.price)}`);
  const memory = (one) => (one.peak_bytes ? bytes(one.peak_bytes) : `≥ ${bytes(one.initial_bound_bytes)}`);
  return tableOf(title, candidates, [
    ...placeColumns(found),
    numbers("step", step),
    ...(isFrontier ? frontierColumns(found) : []),
    numbers(costTitle(found).toLowerCase(), price),
    numbers("MFU", (one) => share(one.mfu)),
    numbers("memory per device", memory),
    numbers("gap", (one) => share(one.step_gap)),
    !isFrontier && words("", outcome),
  ]);
}

/** Returns what a whole run takes on every candidate of the frontier, or null where no number of tokens was given. */
function runs(frontier, found) {
  if (!found.run_tokens) return null;
  const title = `A run of ${Number(found.run_tokens.toPrecision(4)).toExponential()} tokens (energy of the devices at their rated power)`;
  const megawattHours = (one) => (isNumber(one.run_energy_kwh) ? one.run_energy_kwh / 1000 : null);
  return tableOf(title, frontier, [
    ...placeColumns(found),
    numbers("days", (one) => figure(one.run_days)),
    numbers("device-hours", (one) => figure(one.run_device_hours)),
    numbers("cost", (one) => figure(one.run_cost)),
    numbers("energy in MWh", (one) => figure(megawattHours(one))),
  ]);
}

/** Returns the columns that say which candidate a row is: mesh, hardware, devices; graph and batch where several are. */
function placeColumns(found) {
  const graph = (one) => found.graphs[one.graph];
  const passes = (one) => ((graph(one).microbatches ?? 1) > 1 ? ` × ${graph(one).microbatches}` : "");
  const areNamed = new Set(found.graphs.map((each) => each.name)).size > 1;
  const areSized = found.request.global_batch || new Set(found.graphs.map((each) => each.batch)).size > 1;
  return [
    words("mesh", (one) => one.mesh),
    words("hardware", (one) => one.hardware),
    numbers("devices", (one) => count(one.devices)),
    areNamed && words("graph", (one) => graph(one).name),
    areSized && numbers("batch", (one) => `${graph(one).batch ?? "–"}${passes(one)}`),
  ];
}

/** Returns the throughput, where tokens are counted. */
function frontierColumns(found) {
  return [
    tokens(found) && numbers("tokens/s", (one) => figure(one.tokens_per_s)),
    tokens(found) && numbers("tokens/s/device", (one) => figure(one.tokens_per_device_s)),
  ];
}

const words = (title, cell) => ({ heading: [title], cell });
const numbers = (title, cell) => ({ heading: [title, "number"], cell });

/** Creates a table with a row for each of the first candidates; columns that are false are left out. */
function tableOf(title, candidates, wanted) {
  const columns = wanted.filter(Boolean);
  const rows = candidates.slice(0, MOST).map((one) => columns.map(({ cell }) => cell(one)));
  const rest = candidates.length - MOST;
  if (rest > 0) rows.push([`and ${count(rest)} more`, ...Array(columns.length - 1).fill("")]);
  return table(
    title,
    columns.map(({ heading }) => heading),
    rows,
    { class: "candidates" },
  );
}

const isNumber = (value) => value !== null && value !== undefined;

/** Formats a figure without a unit: "12 300", "0.0123". */
function figure(value) {
  if (!isNumber(value)) return "–";
  return value >= 100 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
}
