// The capacity page: a form, and below it the answer to which devices a model needs.

import { capacityView } from "../report/capacity.js";
import { h } from "../report/elements.js";
import { field, form, graphFields, graphText, limitFields, limitOf, number, text } from "./forms.js";
import { events, fetchJson, send } from "./service.js";

/** Fills the page with the form. */
export async function capacityPage(page, signal) {
  const [{ hardware, default: usual }, models] = await Promise.all(
    ["/v1/hardware", "/v1/models"].map((path) => fetchJson(path, { signal })),
  );
  const offer = (name) =>
    h(
      "div",
      { class: "offer" },
      h("label", {}, h("input", { type: "checkbox", name: "offer", value: name, checked: name === usual }), ` ${name}`),
      text(`price-${name}`, {
        type: "number",
        min: "0",
        step: "any",
        placeholder: "price",
        "aria-label": `${name}: price per device-hour`,
      }),
    );
  const names = hardware.map((each) => each.name).sort((a, b) => Number(b === usual) - Number(a === usual));
  const parts = (button) =>
    h(
      "div",
      { class: "columns" },
      h("div", {}, graphFields(models, ".json", "graph document (.json)")),
      h(
        "div",
        {},
        field(
          "devices",
          text("devices", { required: true, value: "8..64" }),
          "a list such as 8,16,24, or 8..512 for every doubling",
        ),
        h("fieldset", {}, h("legend", {}, "Hardware, with the price of a device-hour"), names.map(offer)),
        field("mesh", text("mesh", { placeholder: "all meshes" }), "optional, with ? for an unknown size: dp=?,tp=8"),
        field("tokens", number("tokens", ""), "of a whole run, such as 15e12: its days, cost and energy"),
        field(
          "global batch",
          number("global_batch", ""),
          "sequences of an update: as many micro-batches of each batch",
        ),
        limitFields(),
        field("time limit", number("seconds", ""), "seconds in all; without it every candidate is decided"),
        button,
      ),
    );
  const act = async (given, show) => {
    const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: await body(given), signal };
    const { links } = await (await send("/v1/capacity", post)).json();
    for await (const each of events(links.events, signal)) {
      if (each.kind === "frontier") {
        const best = each.frontier.length ? `; ${each.frontier.length} on the frontier` : "";
        show(`${each.decided} of ${each.candidates} candidates decided, ${each.planned} planned${best}`);
      }
    }
    return capacityView(await fetchJson(`${links.self}/document`, { signal }));
  };
  page.append(h("h1", {}, "Capacity"), form(parts, "Find devices", act));
}

async function body(sizing) {
  const given = new FormData(sizing);
  const hardware = given.getAll("offer").map((name) => {
    const price = Number(given.get(`price-${name}`));
    return { name, ...(price ? { price_per_device_hour: price } : {}) };
  });
  const mesh = String(given.get("mesh")).trim();
  const [seconds, tokens, batch] = ["seconds", "tokens", "global_batch"].map((name) => Number(given.get(name)));
  const rest = {
    devices: String(given.get("devices")).trim(),
    hardware,
    ...(mesh ? { mesh } : {}),
    ...limitOf(given),
    ...(seconds ? { time_limit_s: seconds } : {}),
    ...(tokens ? { tokens } : {}),
    ...(batch ? { global_batch: batch } : {}),
  };
  return `{"graphs":[${await graphText(sizing)}],${JSON.stringify(rest).slice(1)}`;
}
