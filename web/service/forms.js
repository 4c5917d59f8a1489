// The parts that forms have in common: named fields, choices, the graph that is pasted or taken from a file.

import { h } from "../report/elements.js";
import { problemView } from "./problems.js";
import { ask } from "./service.js";

const UNITS = { GiB: 2 ** 30, GB: 1e9, MiB: 2 ** 20, MB: 1e6 };

/** An input under its name, with a hint. */
export function field(name, input, hint) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, name, hint ? h("small", {}, ` ${hint}`) : ""),
    input,
  );
}

/** A line of text. */
export const text = (id, attributes = {}) =>
  h("input", { id, name: id, autocomplete: "off", spellcheck: "false", ...attributes });

/** A number, which may be left out. */
export const number = (id, placeholder) => text(id, { type: "number", min: "0", step: "any", placeholder });

/** One of several; [value, words] each. */
export const choice = (id, options) =>
  h(
    "select",
    { id, name: id },
    options.map(([value, words, selected]) => h("option", { value, selected }, words)),
  );

/** What a graph is chosen by: a built-in model with its sizes, a file that is dropped or chosen, or pasted JSON.
 * `accept` lists the endings of files. */
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

/** An area that takes a file, dropped or chosen. */
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

/** The text of the chosen graph; where none is given "null", and the service says so. */
export async function graphText(form) {
  const given = new FormData(form);
  const model = given.get("model");
  if (model) {
    const sizes = ["batch", "seq", "train"].map((key) => [key, String(given.get(key) ?? "").trim()]);
    const query = new URLSearchParams(sizes.filter(([, value]) => value));
    return (await ask(`/v1/models/${model}/graph?${query}`)).text();
  }
  const [file] = form.elements.file.files;
  return (file ? await file.text() : form.elements.graph.value).trim() || "null";
}

/** A limit of memory with its unit. */
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

/** The limit in bytes, where one is given. */
export function limitOf(given) {
  const limit = Number(given.get("limit"));
  return limit ? { memory_limit_bytes: Math.round(limit * UNITS[given.get("unit")]) } : {};
}

/** A form that says what comes of it: `act(form)` gives the element to show, or nothing. */
export function form(parts, words, act) {
  const said = h("div", { class: "said" });
  const send = h("button", { class: "main" }, words);
  const submit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    said.replaceChildren(h("p", { role: "status" }, "Working…"));
    try {
      said.replaceChildren((await act(event.target)) ?? "");
    } catch (error) {
      said.replaceChildren(problemView(error));
    }
    send.disabled = false;
  };
  return h("form", { class: "ask", onsubmit: submit }, parts(send), said);
}
