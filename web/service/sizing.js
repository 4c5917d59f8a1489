// Which devices a model needs: the form, and the answer with its candidates, the frontier first.

import { bar, h, table } from "../report/elements.js";
import { bytes, count, share, time } from "../report/units.js";
import { field, form, graphFields, graphText, limitFields, limitOf, number, text } from "./forms.js";
import { ask, asked } from "./service.js";

const MOST = 200;
const WHY = {
  memory: "does not fit, by its floor",
  infeasible: "does not fit, as",
  bound: "proven no better than",
  time: "no time was left",
};

/** The page of capacity. */
export async function sizePage(page, signal) {
  const { hardware } = await asked("/v1/hardware", { signal });
  const offer = (name, k) =>
    h(
      "div",
      { class: "offer" },
      h("label", {}, h("input", { type: "checkbox", name: "offer", value: name, checked: k === 0 }), ` ${name}`),
      text(`hour-${name}`, {
        type: "number",
        min: "0",
        step: "any",
        placeholder: "price",
        "aria-label": `${name}: price an hour`,
      }),
    );
  const names = hardware.map((each) => each.name).sort((a, b) => b.startsWith("h100") - a.startsWith("h100"));
  const parts = (send) =>
    h(
      "div",
      { class: "columns" },
      h("div", {}, graphFields(".json", "or a file with one")),
      h(
        "div",
        {},
        field("devices", text("devices", { required: true, value: "8..64" }), "8,16,24, or 8..512, which doubles"),
        h("fieldset", {}, h("legend", {}, "Hardware, and what a device costs an hour"), names.map(offer)),
        field(
          "mesh",
          text("mesh", { placeholder: "every factorisation" }),
          "with ? for sizes to find, such as dp=?,tp=8",
        ),
        limitFields(),
        field("seconds", number("seconds", "30"), "in all at most; what is left is said"),
        send,
      ),
    );
  const act = async (given) => {
    const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: await body(given) };
    return answer(await (await ask("/v1/capacity", post)).json());
  };
  page.append(h("h1", {}, "Capacity"), form(parts, "Find the cluster", act));
}

async function body(sizing) {
  const given = new FormData(sizing);
  const hardware = given.getAll("offer").map((name) => {
    const hour = Number(given.get(`hour-${name}`));
    return { name, ...(hour ? { hour } : {}) };
  });
  const [mesh, seconds] = [given.get("mesh").trim(), Number(given.get("seconds"))];
  const rest = {
    devices: given.get("devices").trim(),
    hardware,
    ...(mesh ? { mesh } : {}),
    ...limitOf(given),
    ...(seconds ? { time_limit_s: seconds } : {}),
  };
  return `{"graphs":[${await graphText(sizing)}],${JSON.stringify(rest).slice(1)}`;
}

function answer(found) {
  const best = [
    ["Smallest that fits", found.smallest_feasible],
    ["Cheapest", found.cheapest],
    ["Fastest", found.fastest],
  ];
  const many = found.unit === "token" ? 1e6 : 1;
  const cost = (one) => (one.cost === undefined ? "–" : `${Number((many * one.cost).toPrecision(4))}`);
  const card = ([words, one]) =>
    h(
      "div",
      { class: "card" },
      h("div", { class: "what" }, words),
      h("div", { class: "value" }, one ? `${one.devices} × ${one.hardware}` : "none"),
      one && h("div", { class: "quiet" }, `${one.mesh}: a step in ${time(one.objective_s)}, cost ${cost(one)}`),
    );
  const unit = `cost of a ${many > 1 ? "million tokens" : found.unit} (${found.cost_unit.replace("_", " ")})`;
  return h(
    "div",
    {},
    h("div", { class: "cards" }, best.map(card)),
    h(
      "p",
      {},
      `${count(found.candidates.length)} candidates, ${count(found.planned)} of them planned; the others are passed over by proven bounds.`,
      found.complete ? "" : " Not all were looked at: the time ran out.",
    ),
    listed("The frontier: none is both faster and cheaper", found.frontier, unit, cost),
    listed("All candidates", found.candidates, unit, cost),
  );
}

function listed(title, candidates, unit, cost) {
  const slowest = Math.max(0, ...candidates.map((one) => one.objective_s ?? 0));
  const rows = candidates
    .slice(0, MOST)
    .map((one) => [
      one.mesh,
      one.hardware,
      String(one.devices),
      one.objective_s ? bar(one.objective_s / slowest, time(one.objective_s)) : `≥ ${time(one.floor_s)}`,
      share(one.gap),
      one.peak_bytes ? bytes(one.peak_bytes) : `≥ ${bytes(one.floor_bytes)}`,
      cost(one),
      one.why ? `${WHY[one.why] ?? one.why}${one.by ? ` ${one.by}` : ""}` : one.status,
    ]);
  const columns = [["mesh"], ["hardware"], ["devices", "number"], ["step", "number"], ["gap", "number"]];
  return table(title, [...columns, ["memory a device", "number"], [unit, "number"], [""]], rows);
}
