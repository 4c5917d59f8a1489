// The form that asks for a plan: a graph document, or a model in another tool's form, and how to plan it.

import { h } from "./elements.js";
import { problemView } from "./problems.js";
import { ask, asked } from "./service.js";

const UNITS = { GiB: 2 ** 30, GB: 1e9, MiB: 2 ** 20, MB: 1e6 };
const FORMS = {
  json: "application/json",
  mlir: "text/x-stablehlo",
  stablehlo: "text/x-stablehlo",
  onnx: "application/x-onnx",
  pt2: "application/x-torch-export+json",
};

const named = (names) => names.map((name) => [name, name]);

/** The page with the form. */
export async function askPage(page, signal) {
  const { hardware } = await asked("/v1/hardware", { signal });
  const said = h("div", { class: "said" });
  const field = (name, input, hint) =>
    h("div", { class: "field" }, h("label", { for: name }, hint ? [name, h("small", {}, ` ${hint}`)] : name), input);
  const text = (id, attributes = {}) =>
    h("input", { id, name: id, autocomplete: "off", spellcheck: "false", ...attributes });
  const choice = (id, names) =>
    h(
      "select",
      { id, name: id },
      names.map(([value, words]) => h("option", { value }, words)),
    );
  const graph = h("textarea", {
    id: "graph",
    name: "graph",
    rows: "12",
    spellcheck: "false",
    placeholder: '{"format":"shardplan.graph","version":1,…}',
  });
  const file = h("input", { type: "file", id: "file", name: "file", accept: ".json,.mlir,.stablehlo,.onnx,.pt2" });
  const form = h(
    "form",
    {
      class: "ask",
      onsubmit: (event) => {
        event.preventDefault();
        submit(form, said);
      },
    },
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        field("graph", graph, "a graph document"),
        field("file", file, "or a file: graph document, StableHLO, ONNX, torch.export JSON"),
      ),
      h(
        "div",
        {},
        field("mesh", text("mesh", { required: true, value: "dp=2,tp=4" }), "axes and sizes, the outermost first"),
        field("hardware", choice("hardware", [["", "the usual"], ...named(hardware.map((each) => each.name))])),
        h(
          "div",
          { class: "pair" },
          field(
            "limit",
            text("limit", { type: "number", min: "0", step: "any", placeholder: "all of it" }),
            "memory a device",
          ),
          field("unit", choice("unit", named(Object.keys(UNITS)))),
        ),
        field(
          "seconds",
          text("seconds", { type: "number", min: "0", step: "any", placeholder: "no limit" }),
          "to solve at most",
        ),
        field("recompute", choice("recompute", named(["none", "auto"])), "values made again for the backward pass"),
        h(
          "label",
          { class: "check" },
          h("input", { type: "checkbox", name: "deterministic" }),
          " deterministic: same input, same bytes",
        ),
        h("button", { class: "main" }, "Plan"),
      ),
    ),
    said,
  );
  page.append(h("h1", {}, "New plan"), form);
}

async function submit(form, said) {
  said.replaceChildren(h("p", { role: "status" }, "Being asked…"));
  try {
    const answer = await (await ask(...(await request(form)))).json();
    location.hash = `#/plans/${answer.id}`;
  } catch (error) {
    said.replaceChildren(problemView(error));
  }
}

/** Path and options: JSON in one body; another form as it is, with the rest in the query. */
async function request(form) {
  const given = new FormData(form),
    file = form.elements.file.files[0];
  const limit = Number(given.get("limit")),
    seconds = Number(given.get("seconds"));
  const how = {
    ...(limit ? { memory_limit_bytes: Math.round(limit * UNITS[given.get("unit")]) } : {}),
    ...(seconds ? { time_limit_s: seconds } : {}),
    ...(given.get("deterministic") ? { deterministic: true } : {}),
    recompute: given.get("recompute"),
  };
  const kind = file ? (FORMS[file.name.split(".").pop().toLowerCase()] ?? FORMS.json) : FORMS.json;
  const where = {
    mesh: given.get("mesh").trim(),
    ...(given.get("hardware") ? { hardware: given.get("hardware") } : {}),
  };
  const post = { method: "POST", headers: { "Content-Type": kind } };
  if (kind !== FORMS.json) {
    const query = new URLSearchParams({ ...where, name: file.name.replace(/\.[^.]*$/, ""), ...how });
    return [`/v1/plans?${query}`, { ...post, body: file }];
  }
  const graph = (file ? await file.text() : given.get("graph")).trim() || "null";
  const rest = JSON.stringify({ ...where, request: how }).slice(1);
  return ["/v1/plans", { ...post, body: `{"graph":${graph},${rest}` }];
}
