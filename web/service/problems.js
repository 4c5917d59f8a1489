// Shows an error of the service with its place in the request.

import { facts, h } from "../report/elements.js";
import { Refused } from "./service.js";

/** Returns the element for an error of the service; other errors are thrown again. */
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
