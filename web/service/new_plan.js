// The form that requests a plan: a graph document or a model in another tool's format, and the options.

import { h } from "../report/elements.js";
import { choice, field, form, graphFields, graphText, limitFields, limitOf, number, text } from "./forms.js";
import { fetchJson, send } from "./service.js";

const JSON_KIND = "application/json";
const FORMS = {
  json: JSON_KIND,
  mlir: "text/x-stablehlo",
  stablehlo: "text/x-stablehlo",
  onnx: "application/x-onnx",
  pt2: "application/x-torch-export+json",
};
const ACCEPT = ".json,.mlir,.stablehlo,.onnx,.pt2";

/** Fills the page with the form. */
export async function newPlanPage(page, signal) {
  const [{ hardware, default: usual }, models] = await Promise.all(
    ["/v1/hardware", "/v1/models"].map((path) => fetchJson(path, { signal })),
  );
  const parts = (button) =>
    h(
      "div",
      { class: "columns" },
      h("div", {}, graphFields(models, ACCEPT, "graph document (.json), StableHLO, ONNX or torch.export")),
      h(
        "div",
        {},
        field("mesh", text("mesh", { required: true, value: "dp=2,tp=4" }), "axes and sizes, outermost first"),
        field(
          "hardware",
          choice(
            "hardware",
            hardware.map((each) => [each.name, each.name, each.name === usual]),
          ),
        ),
        limitFields(),
        field("time limit", number("seconds", "none"), "seconds of solving"),
        field(
          "recomputation",
          choice("recompute", [
            ["none", "none"],
            ["auto", "where it saves memory"],
          ]),
          "of activations in the backward pass",
        ),
        h(
          "label",
          { class: "check" },
          h("input", { type: "checkbox", name: "deterministic" }),
          " deterministic: the same input always gives the same plan",
        ),
        button,
      ),
    );
  const act = async (given) => {
    const { path, post } = await request(given);
    const plan = await (await send(path, post)).json();
    location.hash = `#/plans/${plan.id}`;
  };
  page.append(h("h1", {}, "New plan"), form(parts, "Plan", act));
}

/** Returns path and options of the request: JSON has everything in its body; another format is sent unchanged, with the
 * options in the query. */
async function request(asking) {
  const given = new FormData(asking);
  const [file] = given.get("model") ? [] : asking.elements.file.files;
  const seconds = Number(given.get("seconds"));
  const how = {
    ...limitOf(given),
    ...(seconds ? { time_limit_s: seconds } : {}),
    ...(given.get("deterministic") ? { deterministic: true } : {}),
    recompute: given.get("recompute"),
  };
  const where = { mesh: String(given.get("mesh")).trim(), hardware: given.get("hardware") };
  const kind = (file && FORMS[file.name.split(".").pop().toLowerCase()]) || JSON_KIND;
  const post = { method: "POST", headers: { "Content-Type": kind } };
  if (kind !== JSON_KIND) {
    const query = new URLSearchParams(
      Object.entries({ ...where, name: file.name.replace(/\.[^.]*$/, ""), ...how }).map(([key, value]) => [
        key,
        String(value),
      ]),
    );
    return { path: `/v1/plans?${query}`, post: { ...post, body: file } };
  }
  const rest = JSON.stringify({ ...where, request: how }).slice(1);
  return { path: "/v1/plans", post: { ...post, body: `{"graph":${await graphText(asking)},${rest}` } };
}
