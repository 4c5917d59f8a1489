// The tabs of a report; each view is made when its tab is first opened.

import { keepInAddress, readAddress } from "./address.js";
import { communicationView } from "./communication.js";
import { changesOf, compareView } from "./compare.js";
import { h } from "./elements.js";
import { graphView } from "./graph.js";
import { memoryView, scale } from "./memory.js";
import { readProgram } from "./program.js";
import { scheduleView } from "./schedule.js";
import { mesh, summaryView } from "./summary.js";

/** Returns the element that shows a report document.
 * @param {import("./types").Report} report */
export function reportView(report) {
  const view = new Report(report);
  view.open(view.named(readAddress().state.get("tab")));
  return view.element;
}

class Report {
  /** @param {import("./types").Report} report */
  constructor(report) {
    this.report = report;
    this.plan = report.plan;
    this.compareTo = report.compare_to;
    this.made = new Set();
    this.drawn = null;
    this.program = readProgram(this.plan);
    this.other = this.compareTo && readProgram(this.compareTo);
    this.byId = new Map((this.program?.values ?? []).map((value) => [value.id, value]));
    this.tabs = Object.entries(this.views()).map(([name, make]) => this.tab(name, make));
    const list = h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "Views of the plan", onkeydown: (event) => this.key(event) },
      this.tabs.map((each) => each.tab),
    );
    this.element = h(
      "div",
      { class: "report" },
      this.header(),
      list,
      this.tabs.map((each) => each.panel),
    );
  }

  header() {
    const title = (sheet) => [
      h("bdi", {}, sheet.graph.name),
      h("small", {}, ` on ${mesh(sheet)} (${sheet.hardware.name})`),
    ];
    return h(
      "header",
      {},
      h(
        "h1",
        {},
        title(this.plan),
        " ",
        h("span", { class: `chip ${this.plan.solver.status}` }, this.plan.solver.status),
      ),
      this.compareTo && h("p", { class: "quiet" }, "compared with ", title(this.compareTo)),
    );
  }

  views() {
    const both = (make) => this.sideBySide(make);
    const views = { Summary: () => both(summaryView) };
    if (this.compareTo) views.Compare = () => compareView(this.report, this.program && ((name) => this.show(name)));
    if (this.program) {
      views.Graph = () => this.graph().element;
      views.Memory = () => both((sheet) => memoryView(sheet, this.top()));
      views.Communication = () =>
        both((sheet) =>
          communicationView(sheet, sheet === this.plan ? (name) => this.known(name) && (() => this.show(name)) : null),
        );
      views.Schedule = () =>
        both((sheet) =>
          scheduleView(
            sheet,
            sheet === this.plan ? this.program : this.other,
            sheet === this.plan ? (op) => this.show(op.id) : null,
          ),
        );
    }
    return views;
  }

  /** Returns one view for both plans; a plan without a program has only a summary. */
  sideBySide(make) {
    if (!this.compareTo) return make(this.plan);
    const part = (name, sheet) =>
      h(
        "section",
        { class: "side" },
        h("h2", {}, name),
        sheet.program || make === summaryView ? make(sheet) : h("p", {}, "There is no plan."),
      );
    return h("div", { class: "sides" }, part("This plan", this.plan), part("Other plan", this.compareTo));
  }

  /** Returns the end of the memory scale that both plans share. */
  top() {
    const sheets = [this.plan, this.compareTo].flatMap((sheet) => (sheet?.program ? [sheet] : []));
    return Math.max(...sheets.map(({ memory, request }) => scale(memory.peak_bytes, request.memory_limit_bytes)));
  }

  graph() {
    this.drawn ??= graphView(this.program, changesOf(this.report.comparison));
    return this.drawn;
  }

  /** Returns the graph's value with a name; the name of a copy is that of its original and a number. */
  known(name) {
    return this.byId.get(name) ?? this.byId.get(name.replace(/\.\d+$/, ""));
  }

  show(name) {
    const value = this.known(name);
    if (!value) return;
    this.choose("Graph");
    this.graph().revealValue(value);
  }

  tab(name, make) {
    const id = name.toLowerCase();
    const panel = h("div", {
      id: `panel-${id}`,
      class: "panel-of-tab",
      role: "tabpanel",
      "aria-labelledby": `tab-${id}`,
      hidden: true,
    });
    const tab = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${id}`,
        "aria-controls": `panel-${id}`,
        "aria-selected": "false",
        tabindex: "-1",
        onclick: () => this.choose(name),
      },
      name,
    );
    return { name, make, tab, panel };
  }

  /** Returns the name of the view in the address, else the first. */
  named(id) {
    return (this.tabs.find((each) => each.name.toLowerCase() === id) ?? this.tabs[0]).name;
  }

  /** Opens a view and keeps it in the address. */
  choose(name) {
    this.open(name);
    keepInAddress("tab", name === this.tabs[0].name ? [] : [name.toLowerCase()]);
  }

  open(name) {
    for (const each of this.tabs) {
      const chosen = each.name === name;
      each.tab.setAttribute("aria-selected", String(chosen));
      each.tab.setAttribute("tabindex", chosen ? "0" : "-1");
      each.panel.hidden = !chosen;
      if (chosen && !this.made.has(name)) {
        this.made.add(name);
        each.panel.append(each.make());
      }
    }
  }

  key(event) {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const now = this.tabs.findIndex((each) => each.tab.getAttribute("aria-selected") === "true");
    const next = this.tabs[(now + way + this.tabs.length) % this.tabs.length];
    this.choose(next.name);
    next.tab.focus();
    event.preventDefault();
  }
}
