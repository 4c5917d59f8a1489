// The list of plans, newest first; it is refreshed while a plan is queued or running.

import { h, table } from "../report/elements.js";
import { share, time } from "../report/units.js";
import { fetchJson } from "./service.js";

const AGAIN_MS = 2000;
const PAGE = 50;
const OPEN = ["queued", "running"];

/** Returns whether a plan is queued or running. */
export const isOpen = (plan) => OPEN.includes(plan.status);

/** Creates the label of a status. */
export const chip = (status) => h("span", { class: `chip ${status}` }, status);

/** Fills the page with the list of plans. */
export async function listPage(page, signal) {
  const list = h("div", {});
  const chosen = new Set();
  /** @type {string[]} */
  let order = [];
  const compare = h(
    "button",
    {
      type: "button",
      disabled: true,
      onclick: () => {
        const [now, base] = order.filter((id) => chosen.has(id));
        location.hash = `#/compare/${base}/${now}`;
      },
    },
    "Compare two",
  );
  page.append(
    h(
      "div",
      { class: "titled" },
      h("h1", {}, "Plans"),
      h("span", { class: "buttons" }, compare, h("a", { class: "button", href: "#/new" }, "New plan")),
    ),
    list,
  );
  const choose = (id, on) => {
    if (on) chosen.add(id);
    else chosen.delete(id);
    compare.disabled = chosen.size !== 2;
  };
  let wanted = 0;
  const more = h("button", { type: "button", onclick: () => fill(PAGE) }, "More");
  const fill = async (further = 0) => {
    wanted += further;
    const { plans, next } = await newest(wanted, signal);
    order = plans.map((plan) => plan.id);
    list.replaceChildren(plans.length ? rows(plans, chosen, choose) : empty(), next ? more : "");
    if (plans.some(isOpen)) setTimeout(() => signal.aborted || fill().catch(() => {}), AGAIN_MS);
  };
  await fill(PAGE);
}

/** Returns the newest plans, at least `wanted` where there are that many, and the path of the next page or null. */
async function newest(wanted, signal) {
  /** @type {{plans: any[], next: string | null}} */
  let found = { plans: [], next: `/v1/plans?limit=${PAGE}` };
  while (found.next && found.plans.length < wanted) {
    const page = await fetchJson(found.next, { signal });
    found = { plans: [...found.plans, ...page.plans], next: page.next };
  }
  return found;
}

function empty() {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, "No plans yet."),
    h(
      "p",
      {},
      h("a", { href: "#/new" }, "Plan a model"),
      ", or send a request: ",
      h("code", {}, "curl -d @ask.json -H 'Content-Type: application/json' …/v1/plans"),
    ),
  );
}

function rows(plans, chosen, choose) {
  const cells = (plan) => [
    h(
      "label",
      { class: "chosen" },
      h("input", {
        type: "checkbox",
        "aria-label": `compare ${plan.name}`,
        onchange: (event) => choose(plan.id, event.target.checked),
        ...(chosen.has(plan.id) ? { checked: true } : {}),
      }),
      h("a", { href: `#/plans/${plan.id}` }, h("bdi", {}, plan.name)),
    ),
    chip(plan.status),
    time(plan.incumbent_s),
    time(plan.bound_s),
    share(plan.gap),
    h("code", {}, plan.id.slice(0, 10)),
    h("time", { datetime: plan.created_at }, new Date(plan.created_at).toLocaleString()),
  ];
  return table(
    "Your plans",
    [["graph"], ["status"], ["step", "number"], ["bound", "number"], ["gap", "number"], ["id"], ["created"]],
    plans.map(cells),
  );
}
