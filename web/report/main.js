// The report as a file: what the page holds, shown.

import { reportView } from "./views.js";

document.querySelector("main").replaceChildren(reportView(JSON.parse(document.querySelector("#report").textContent)));
