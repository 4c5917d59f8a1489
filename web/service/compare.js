// The comparison of two plans, which are selected in a form or named by the address.

import { h } from "../report/elements.js";
import { reportView } from "../report/views.js";
import { fetchJson } from "./service.js";

/** Fills the page with two plans, or with the form to select them. */
export async function comparePage(page, signal, base, now) {
  if (base) {
    page.append(reportView(await fetchJson(`/v1/plans/${now}/report?compare_to=${base}`, { signal })));
    return;
  }
  const { plans } = await fetchJson("/v1/plans?limit=200", { signal });
  const done = plans.filter((plan) => plan.links.document);
  const choice = (id, words, first) =>
    h(
      "div",
      { class: "field" },
      h("label", { for: id }, words),
      h(
        "select",
        { id, name: id },
        done.map((plan) =>
          h(
            "option",
            { value: plan.id, selected: plan === first },
            `${plan.name} (${plan.status}, ${plan.id.slice(0, 10)})`,
          ),
        ),
      ),
    );
  const go = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    location.hash = `#/compare/${given.get("base")}/${given.get("new")}`;
  };
  page.append(
    h("h1", {}, "Compare two plans"),
    done.length < 2
      ? h("p", {}, "A comparison needs two finished plans.")
      : h(
          "form",
          { class: "ask", onsubmit: go },
          choice("base", "base: before", done[1]),
          choice("new", "new: after", done[0]),
          h("button", { class: "main" }, "Compare"),
        ),
  );
}
