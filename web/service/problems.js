// What went wrong, with the place in what was sent.

import { facts, h } from "../report/elements.js";
import { Refused } from "./service.js";

/** The element for an error of the service; others are thrown on. */
export function problemView(error) {
  if (!(error instanceof Refused)) throw error;
  const { title, detail, errors = [], got, wanted, parameter } = error.problem;
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, title ?? "Error"),
    h("p", {}, detail),
    facts([
      ["got", got],
      ["wanted", wanted],
      ["parameter", parameter],
      ...errors.map((each) => ["at", h("code", {}, each.pointer)]),
    ]),
  );
}
