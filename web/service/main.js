// The service's page: the address's fragment selects what it shows. PAGES has [name in the head, pattern, function].

import { readAddress } from "../report/address.js";
import { h } from "../report/elements.js";
import { capacityPage } from "./capacity.js";
import { comparePage } from "./compare.js";
import { newPlanPage } from "./new_plan.js";
import { planPage } from "./plan.js";
import { listPage } from "./plans.js";
import { problemView } from "./problems.js";
import { KEY_NEEDED, key } from "./service.js";

/** @type {[string | null, RegExp, (page: HTMLElement, signal: AbortSignal, ...ids: any[]) => Promise<void>][]} */
const PAGES = [
  ["Plans", /^\/?$/, listPage],
  ["New plan", /^\/new$/, newPlanPage],
  ["Compare", /^\/compare(?:\/([0-9a-f]{64})\/([0-9a-f]{64}))?$/, comparePage],
  ["Capacity", /^\/capacity$/, capacityPage],
  [null, /^\/plans\/([0-9a-f]{64})$/, planPage],
];
const PATHS = { Plans: "#/", "New plan": "#/new", Compare: "#/compare", Capacity: "#/capacity" };

let leaving = new AbortController();

function head() {
  const links = Object.entries(PATHS).map(([name, path]) => h("a", { href: path, "data-name": name }, name));
  const keys = h("div", { id: "keys" }, key.get() ? keyForm() : null);
  document
    .querySelector("#head")
    ?.replaceChildren(
      h(
        "header",
        { class: "head" },
        h("a", { class: "mark", href: "#/" }, "shardplan"),
        h("nav", { "aria-label": "Pages" }, links),
        keys,
      ),
    );
}

/** Creates the form for the API key, which is shown once the service has requested a key. */
function keyForm() {
  const field = h("input", {
    type: "password",
    id: "key",
    autocomplete: "off",
    spellcheck: "false",
    value: key.get(),
  });
  const keep = (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    show();
  };
  return h(
    "form",
    { class: "key", onsubmit: keep },
    h("label", { for: "key" }, "API key"),
    field,
    h("button", {}, "use"),
  );
}

function askForKey() {
  const keys = document.querySelector("#keys");
  if (keys && !keys.hasChildNodes()) keys.append(keyForm());
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { path } = readAddress();
  const main = document.querySelector("main");
  const [name, pattern, make] = PAGES.find(([, each]) => each.test(path)) ?? PAGES[0];
  for (const each of document.querySelectorAll("nav a")) {
    if (each.getAttribute("data-name") === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const page = h("div", { class: "page", "aria-busy": "true" });
  main?.replaceChildren(page);
  try {
    await make(page, signal, ...(pattern.exec(path) ?? []).slice(1));
  } catch (error) {
    if (error.name !== "AbortError") page.append(problemView(error));
  }
  page.removeAttribute("aria-busy");
}

head();
addEventListener("hashchange", show);
addEventListener(KEY_NEEDED, askForKey);
show();
