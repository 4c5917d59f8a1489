// The script of a report file: shows the document that the page contains.

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
