// Parts that several forms share: labelled fields, selections, and the choice of a graph.

import { h } from "../report/elements.js";
import { problemView } from "./problems.js";
import { send } from "./service.js";

const UNITS = { GiB: 2 ** 30, GB: 1e9, MiB: 2 ** 20, MB: 1e6 };

/** Creates an input with a label and a hint. */
export function field(name, input, hint) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, name, hint ? h("small", {}, ` ${hint}`) : ""),
    input,
  );
}

/** Creates a text input. */
export const text = (id, attributes = {}) =>
  h("input", { id, name: id, autocomplete: "off", spellcheck: "false", ...attributes });

/** Creates an optional number input. */
export const number = (id, placeholder) => text(id, { type: "number", min: "0", step: "any", placeholder });

/** Creates a selection; options are [value, text] or [value, text, is selected]. */
export const choice = (id, options) =>
  h(
    "select",
    { id, name: id },
    options.map(([value, words, selected]) => h("option", { value, selected }, words)),
  );

/** Creates the fields that choose a graph: a built-in model with its sizes, a file, or pasted JSON. `accept` lists the
 * endings of file names. */
export function graphFields({ models, optimizers }, accept, hint) {
  const own = ["", "my own graph: a file, or pasted JSON"];
  const named = choice("model", [...models.map((each) => [each.name, each.name]), own]);
  const pasted = h("textarea", {
    id: "graph",
    name: "graph",
    rows: "8",
    spellcheck: "false",
    placeholder: '{"format":"shardplan.graph","version":1,…}',
  });
  const file = /** @type {HTMLInputElement} */ (h("input", { type: "file", id: "file", name: "file", accept }));
  const told = h("span", {}, "Drop a file here, or choose one");
  const sizes = h("div", { class: "sizes" }, sizeFields(optimizers));
  const text = field("graph", pasted, "pasted, a graph document");
  const update = () => {
    const isOwn = named.value === "";
    sizes.hidden = isOwn;
    text.hidden = !isOwn || Boolean(file.files?.length);
    told.replaceChildren(file.files?.length ? file.files[0].name : "Drop a file here, or choose one");
  };
  named.addEventListener("change", () => {
    if (named.value) file.value = "";
    update();
  });
  file.addEventListener("change", () => {
    if (file.files?.length) named.value = "";
    update();
  });
  update();
  return [field("model", named), sizes, dropZone(file, told, hint), text];
}

/** Creates an area for a file that is dropped or chosen. */
function dropZone(file, told, hint) {
  const over = (isOver) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", isOver);
  };
  const drop = (event) => {
    over(false)(event);
    file.files = event.dataTransfer.files;
    file.dispatchEvent(new Event("change"));
  };
  const zone = h(
    "label",
    { class: "drop", ondragover: over(true), ondragleave: over(false), ondrop: drop },
    file,
    told,
    h("small", {}, hint),
  );
  return zone;
}

const sizeFields = (optimizers) => [
  field("batch", number("batch", "8")),
  field("sequence", number("seq", "default"), "tokens"),
  field("step", choice("train", [["", "forward pass"], ...optimizers.map((each) => [each, `training, ${each}`])])),
];

/** Returns the text of the chosen graph; "null" where there is none, which the service refuses. */
export async function graphText(form) {
  const given = new FormData(form);
  const model = given.get("model");
  if (model) {
    const sizes = ["batch", "seq", "train"].map((key) => [key, String(given.get(key) ?? "").trim()]);
    const query = new URLSearchParams(sizes.filter(([, value]) => value));
    return (await send(`/v1/models/${model}/graph?${query}`)).text();
  }
  const [file] = form.elements.file.files;
  return (file ? await file.text() : form.elements.graph.value).trim() || "null";
}

/** Creates the fields for a memory limit and its unit. */
export const limitFields = () =>
  h(
    "div",
    { class: "pair" },
    field("memory limit", number("limit", "device memory"), "per device"),
    field(
      "unit",
      choice(
        "unit",
        Object.keys(UNITS).map((unit) => [unit, unit]),
      ),
    ),
  );

/** Returns the memory limit of a form in bytes; no key where the field is empty. */
export function limitOf(given) {
  const limit = Number(given.get("limit"));
  return limit ? { memory_limit_bytes: Math.round(limit * UNITS[given.get("unit")]) } : {};
}

/** Creates a form that shows the result of submitting it: `act(form, show)` returns an element, or nothing,
 * and calls `show` with words on how far it is. */
export function form(parts, words, act) {
  const said = h("div", { class: "said" });
  const button = h("button", { class: "main" }, words);
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    said.replaceChildren(h("p", { role: "status" }, "Working…"));
    try {
      const show = (words) => said.replaceChildren(h("p", { role: "status" }, words));
      said.replaceChildren((await act(event.target, show)) ?? "");
    } catch (error) {
      said.replaceChildren(problemView(error));
    }
    button.disabled = false;
  };
  return h("form", { class: "ask", onsubmit: submit }, parts(button), said);
}
