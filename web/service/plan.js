// The page of one plan: its incumbent and bound over time while it is solved, then its report.

import { h, s } from "../report/elements.js";
import { marks, share, time } from "../report/units.js";
import { reportView } from "../report/views.js";
import { chip, isOpen } from "./plans.js";
import { events, fetchJson, send } from "./service.js";

const HIGH = 220,
  LEFT = 86,
  BOTTOM = 30,
  TOP = 10;

/** Fills the page with a plan. */
export async function planPage(page, signal, id) {
  let plan = await fetchJson(`/v1/plans/${id}`, { signal });
  if (isOpen(plan)) {
    await follow(page, signal, plan);
    plan = await fetchJson(`/v1/plans/${id}`, { signal });
  }
  if (!plan.links.document) {
    page.replaceChildren(
      h("h1", {}, h("bdi", {}, plan.name), " ", chip(plan.status)),
      h("p", {}, plan.error ?? "There is no plan."),
    );
    return;
  }
  const report = await fetchJson(`/v1/plans/${id}/report`, { signal });
  page.replaceChildren(
    reportView(report),
    h(
      "footer",
      { class: "saves" },
      saved("Save the report", `/v1/plans/${id}/report`, `${plan.name}.html`, "text/html"),
      saved("Save the plan", `/v1/plans/${id}/document`, `${plan.name}.plan.json`, "application/json"),
    ),
  );
}

/** Creates a button that downloads a file. It fetches by script, because a link cannot send the API key. */
function saved(text, path, name, kind) {
  const save = async () => {
    const url = URL.createObjectURL(await (await send(path, { headers: { Accept: kind } })).blob());
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  return h("button", { type: "button", onclick: save }, text);
}

async function follow(page, signal, plan) {
  const status = h("span", {}, chip(plan.status)),
    chart = h("figure", { class: "live" }),
    told = h("p", { role: "status" }, "Queued.");
  const cancel = h(
    "button",
    { type: "button", onclick: () => send(`/v1/plans/${plan.id}`, { method: "DELETE" }) },
    "Cancel",
  );
  page.replaceChildren(
    h("div", { class: "titled" }, h("h1", {}, h("bdi", {}, plan.name), " ", status), cancel),
    told,
    chart,
  );
  const seen = [];
  for await (const each of events(plan.links.events, signal)) {
    status.replaceChildren(chip(each.status));
    if (each.kind === "running") told.replaceChildren("Solving: no plan found yet.");
    if (each.kind !== "incumbent") continue;
    seen.push(each);
    told.replaceChildren(
      `After ${time(each.elapsed_s)}: ${each.incumbent_s === null ? "no plan found yet" : `best step ${time(each.incumbent_s)}`}, ` +
        `lower bound ${time(each.bound_s)}${each.gap === null ? "" : ` (gap ${share(each.gap)})`}.`,
    );
    chart.replaceChildren(drawn(seen, chart.clientWidth || 600));
  }
}

/** Draws incumbent and bound (seconds of a step) over the seconds of the solve. */
function drawn(seen, wide) {
  const found = seen.filter((each) => each.incumbent_s !== null);
  const values = [...found.map((each) => each.incumbent_s), ...seen.map((each) => each.bound_s)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = (high - low) * 0.1 || high * 0.05 || 1e-9,
    end = seen.at(-1).elapsed_s || 1;
  const [from, to] = [Math.max(0, low - pad), high + pad];
  const x = (at) => LEFT + (at / end) * (wide - LEFT - 12),
    y = (value) => TOP + (HIGH - TOP - BOTTOM) * (1 - (value - from) / (to - from));
  const stairs = (points) =>
    points
      .map(([at, value], k) =>
        k ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`,
      )
      .join("") + (points.length ? `H${x(end)}` : "");
  const ticks = [from, (from + to) / 2, to].map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: wide, y1: y(value), y2: y(value) }),
    s("text", { class: "end", x: LEFT - 8, y: y(value) + 4 }, time(value)),
  ]);
  const seconds = marks(end, 5).map((at) =>
    s("text", { class: "middle", x: x(at), y: HIGH - 8 }, `${Number(at.toPrecision(3))} s`),
  );
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": "Incumbent and bound over time" },
    ticks,
    seconds,
    s("path", { class: "line-bound", d: stairs(seen.map((each) => [each.elapsed_s, each.bound_s])) }),
    s("path", { class: "line-incumbent", d: stairs(found.map((each) => [each.elapsed_s, each.incumbent_s])) }),
    s(
      "text",
      { x: wide - 12, y: y(found.at(-1)?.incumbent_s ?? high) - 6, class: "end" },
      found.length ? "best found" : "",
    ),
    s("text", { x: wide - 12, y: y(seen.at(-1).bound_s) + 16, class: "end" }, "lower bound"),
  );
}
