// The script of a report file: shows the document that the page contains.

import { capacityView } from "./capacity.js";
import { h } from "./elements.js";
import { pipelineView } from "./pipeline.js";
import { reportView } from "./views.js";

const held = JSON.parse(document.querySelector("#report")?.textContent ?? "null");

const VIEWS = { "shardplan.capacity": capacityView, "shardplan.pipeline": pipelineView };

function show() {
  const view = (VIEWS[held.format] ?? reportView)(held);
  document.querySelector("main")?.replaceChildren(h("div", {}, view));
}

addEventListener("hashchange", show);
show();
