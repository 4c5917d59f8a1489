// The parts that forms have in common: named fields, choices, the graph that is pasted or taken from a file.

import { h } from "../report/elements.js";
import { problemView } from "./problems.js";

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

/** Where a graph is pasted or chosen; `accept`: the endings of files. */
export function graphFields(accept, hint) {
  const pasted = h("textarea", {
    id: "graph",
    name: "graph",
    rows: "12",
    spellcheck: "false",
    placeholder: '{"format":"shardplan.graph","version":1,…}',
  });
  const file = h("input", { type: "file", id: "file", name: "file", accept });
  return [field("graph", pasted, "a graph document"), field("file", file, hint)];
}

/** The text of the graph; what is missing is null, and the service says so. */
export async function graphText(form) {
  const [file] = form.elements.file.files;
  return (file ? await file.text() : form.elements.graph.value).trim() || "null";
}

/** A limit of memory with its unit. */
export const limitFields = () =>
  h(
    "div",
    { class: "pair" },
    field("limit", number("limit", "all of it"), "memory a device"),
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
    said.replaceChildren(h("p", { role: "status" }, "Being asked…"));
    try {
      said.replaceChildren((await act(event.target)) ?? "");
    } catch (error) {
      said.replaceChildren(problemView(error));
    }
    send.disabled = false;
  };
  return h("form", { class: "ask", onsubmit: submit }, parts(send), said);
}
