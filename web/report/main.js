// The report as a file: what the page holds, shown.

import { capacityView } from "./capacity.js";
import { h } from "./elements.js";
import { reportView } from "./views.js";

const held = JSON.parse(document.querySelector("#report")?.textContent ?? "null");

function show() {
  const view = held.format === "shardplan.capacity" ? capacityView(held) : reportView(held);
  document.querySelector("main")?.replaceChildren(h("div", {}, view));
}

addEventListener("hashchange", show);
show();
