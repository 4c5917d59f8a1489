// The search box of the graph: finds ops by id, kind and scope, and inputs by id and name.

import { h } from "./elements.js";

const FOUND = 30;

/** Returns the element and a function that hides the matches; `reveal.op` and `reveal.value` open a match.
 * @param {import("./types").Program} program
 * @param {{op: (op: import("./types").Op) => void, value: (value: import("./types").Value) => void}} reveal */
export function searchBox(program, reveal) {
  const results = h("ul", { class: "results", hidden: true });
  const input = h("input", {
    type: "search",
    placeholder: "op, value or name",
    "aria-label": "Search ops and values",
    oninput: () => search(input.value.trim().toLowerCase()),
    onkeydown: (event) => event.key === "Enter" && results.querySelector("button")?.click(),
  });
  const search = (wanted) => {
    const found = wanted ? matches(program, reveal, wanted) : [];
    const left = found.length > FOUND ? [h("li", { class: "more" }, `and ${found.length - FOUND} more`)] : [];
    const none = wanted && !found.length ? [h("li", { class: "more" }, "no match")] : [];
    results.replaceChildren(...found.slice(0, FOUND).map(item), ...left, ...none);
    results.hidden = !wanted;
  };
  const close = () => {
    results.hidden = true;
  };
  return { element: h("div", { class: "search" }, input, results), close };
}

function matches(program, reveal, wanted) {
  const holds = (...words) => words.some((word) => word?.toLowerCase().includes(wanted));
  const ops = program.ops.filter((op) => holds(op.id, op.op, op.scope));
  const inputs = program.inputs.filter((value) => holds(value.id, value.name));
  return [
    ...ops.map((op) => ({ name: op.id, what: `${op.op} ${op.scope}`, act: () => reveal.op(op) })),
    ...inputs.map((value) => ({ name: value.name, what: value.kind, act: () => reveal.value(value) })),
  ];
}

const item = ({ name, what, act }) =>
  h("li", {}, h("button", { type: "button", onclick: act }, h("bdi", {}, name), h("small", {}, what)));
