// The graph tab: a picture in a scrolling window, search, colours, keys, and a panel with details of the selection.

import { keepInAddress, readAddress } from "./address.js";
import { describe, describeEdge } from "./details.js";
import { h } from "./elements.js";
import { layout } from "./layout.js";
import { HEAT_NAMES, heat, nearest, picture } from "./picture.js";
import { boxesIn, line, nodesIn, openCostliest, tree } from "./scopes.js";
import { searchBox } from "./search.js";
import { ps, share, signed } from "./units.js";

const WIDE = 1600;
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/** Returns the view of a program; `changes` (from compare.js) colour it where two plans are compared. */
export function graphView(program, changes) {
  return new GraphView(program, changes);
}

class GraphView {
  /** @param {import("./types").Program} program */
  constructor(program, changes) {
    this.program = program;
    this.changes = changes;
    this.zoom = 1;
    this.size = [0, 0];
    /** @type {import("./types").Node | null} */
    this.picked = null;
    this.by = changes ? "change" : "cost";
    const { root, leaves } = tree(program);
    this.root = root;
    this.leaves = leaves;
    this.window = h("div", {
      class: "window",
      onkeydown: (event) => this.key(event),
      onwheel: (event) => this.wheel(event),
    });
    this.panel = h("aside", { class: "panel", "aria-live": "polite", "aria-label": "Selection" });
    this.search = searchBox(program, { op: (op) => this.revealOp(op), value: (value) => this.revealValue(value) });
    this.legend = h("div", { class: "legend" });
    this.element = h("div", { class: "graph" }, this.toolbar(), h("div", { class: "split" }, this.window, this.panel));
    const { state } = readAddress();
    const nodes = new Map(nodesIn(this.root).map((node) => [node.key, node]));
    if (state.has("open")) for (const key of state.getAll("open")) Object.assign(nodes.get(key) ?? {}, { open: true });
    else openCostliest(this.root, () => layout(this.root).width <= WIDE);
    this.draw();
    this.describe(nodes.get(state.get("at")) ?? null);
    this.settled = new ResizeObserver(() => this.settle());
    this.settled.observe(this.window);
  }

  /** Scales the picture once the window has a size, and scrolls to the node that the address names. */
  settle() {
    if (!this.window.clientWidth) return;
    this.settled.disconnect();
    this.scale(Math.min(1, Math.max(0.55, (this.window.clientWidth - 4) / this.size[0])));
    this.window.scrollTo((this.window.scrollWidth - this.window.clientWidth) / 2, 0);
    const element = this.elementOf(this.picked);
    if (element) this.bring(element, true);
  }

  /** Keeps the visible open boxes in the address. */
  keepOpen() {
    const open = (box) => boxesIn(box).flatMap((child) => (child.open ? [child.key, ...open(child)] : []));
    const keys = open(this.root);
    keepInAddress("open", keys.length ? keys : [""]);
  }

  toolbar() {
    const colour =
      this.changes &&
      h(
        "label",
        {},
        "colour by ",
        h(
          "select",
          {
            onchange: (event) => {
              this.by = event.target.value;
              this.draw();
            },
          },
          h("option", { value: "change" }, "change"),
          h("option", { value: "cost" }, "cost"),
        ),
      );
    const button = (text, what, act) =>
      h("button", { type: "button", title: what, "aria-label": what, onclick: act }, text);
    return h(
      "div",
      { class: "toolbar" },
      this.search.element,
      colour,
      h(
        "span",
        { class: "buttons" },
        button("−", "Smaller", () => this.scale(this.zoom / 1.25)),
        button("+", "Larger", () => this.scale(this.zoom * 1.25)),
        button("fit", "Fit the width", () => this.fit()),
        button("close all", "Close all boxes", () => this.closeAll()),
      ),
      this.legend,
    );
  }

  draw() {
    const found = layout(this.root);
    this.svg = picture(found, {
      pick: (node) => this.act(node),
      pickEdge: (group) => this.panel.replaceChildren(...describeEdge(group, this)),
      kind: (node) => this.kind(node),
      note: (node) => this.note(node),
      brief: (node) => this.brief(node),
      part: (time) => time / (this.program.step || 1),
    });
    this.size = [found.width, found.height];
    this.window.replaceChildren(this.svg);
    this.scale(this.zoom);
    const first = this.svg.querySelector(".node");
    first?.setAttribute("tabindex", "0");
    this.drawLegend();
    this.mark();
  }

  drawLegend() {
    const words =
      this.by === "cost"
        ? HEAT_NAMES.map((name, k) => [`heat${k}`, name])
        : [
            ["slower", "slower"],
            ["faster", "faster"],
            ["other", "sharded differently"],
            ["heat0", "unchanged"],
          ];
    const unit = this.by === "cost" ? "of the step, with collectives" : "than in the other plan";
    this.legend.replaceChildren(
      ...words.map(([kind, name]) => h("span", {}, h("i", { class: `swatch ${kind}` }), name)),
      h("span", {}, unit),
    );
  }

  kind(node) {
    if (node.kind === "port" || node.kind === "outputs") return "";
    if (this.by === "cost") return heat((node.time + node.moved) / (this.program.step || 1));
    const change = this.changes.of(node);
    if (!change) return "heat0";
    if (!change.ps) return "other";
    return change.ps > 0 ? "slower" : "faster";
  }

  note(node) {
    if (node.kind === "port") return "outside this box; select to go there";
    if (node.kind === "input") return `${node.of.kind} ${node.of.type} ${node.of.sharding}`;
    if (node.kind === "outputs") return `${this.program.outputs.length} values`;
    const time = this.cost(node);
    return node.kind === "box"
      ? `${node.ops} ops, ${time}`
      : `${node.of.op}${node.of.split ? ` [${node.of.split}]` : ""}, ${time}`;
  }

  /** Returns the part of the note that fits into the picture. */
  brief(node) {
    if (node.kind !== "op") return this.note(node);
    return `${this.cost(node).split(",")[0]} · ${node.of.split || "whole"}`;
  }

  /** Returns a node's time and share of the step, or its change in time. */
  cost(node) {
    const change = this.by === "change" && this.changes.of(node);
    const all = node.time + node.moved;
    return change ? signed(change.ps, ps) : `${ps(all)}, ${share(all / (this.program.step || 1))}`;
  }

  /** Handles a click on a node: a box opens or closes, a port leads to its other end, others are described. */
  act(node) {
    if (node.kind === "port") {
      this.reveal(node.leads);
      return;
    }
    if (node.kind === "box") {
      node.open = !node.open;
      const [left, top] = [this.window.scrollLeft, this.window.scrollTop];
      this.draw();
      this.keepOpen();
      this.window.scrollTo(left, top);
    }
    this.pick(node);
    this.bring(this.elementOf(node), false);
  }

  pick(node) {
    this.describe(node);
    keepInAddress("at", node ? [node.key] : []);
  }

  describe(node) {
    this.picked = node;
    this.panel.replaceChildren(...describe(node, this));
    this.mark();
  }

  mark() {
    for (const each of this.svg.querySelectorAll(".picked, .near")) each.classList.remove("picked", "near");
    const element = this.elementOf(this.picked);
    if (!element || !this.picked) return;
    element.classList.add("picked");
    const { key } = this.picked;
    for (const each of this.svg.querySelectorAll(".edge")) {
      if (each.dataset.from === key || each.dataset.to === key) each.classList.add("near");
    }
  }

  /** Opens all boxes around a node, selects it, and scrolls it to the middle. */
  reveal(node) {
    for (const each of line(node).slice(1)) each.open = true;
    this.draw();
    this.keepOpen();
    this.pick(node);
    this.search.close();
    this.bring(this.elementOf(node), true);
  }

  /** Scrolls the window, but not the page, until a node is visible, or in the middle if `middle` is set. */
  bring(element, middle) {
    if (!element) return;
    const [at, seen] = [element.getBoundingClientRect(), this.window.getBoundingClientRect()];
    const by = (from, to, first, last) => {
      if (middle) return (from + to) / 2 - (first + last) / 2;
      return from < first ? from - first - 8 : Math.max(0, Math.min(to - last + 8, from - first - 8));
    };
    this.window.scrollBy(by(at.left, at.right, seen.left, seen.right), by(at.top, at.bottom, seen.top, seen.bottom));
    this.svg.querySelector('.node[tabindex="0"]')?.setAttribute("tabindex", "-1");
    element.setAttribute("tabindex", "0");
    element.focus({ preventScroll: true });
  }

  revealOp(op) {
    this.reveal(this.leaves.ops[op.index]);
  }

  revealValue(value) {
    return value.maker ? this.revealOp(value.maker) : this.reveal(this.leaves.inputs.get(value));
  }

  elementOf(node) {
    return node && this.svg.querySelector(`.node[data-key="${CSS.escape(node.key)}"]`);
  }

  closeAll() {
    const shut = (box) =>
      boxesIn(box).forEach((child) => {
        child.open = false;
        shut(child);
      });
    shut(this.root);
    this.draw();
    this.keepOpen();
  }

  scale(zoom) {
    this.zoom = Math.min(3, Math.max(0.1, zoom));
    this.svg.setAttribute("width", this.size[0] * this.zoom);
    this.svg.setAttribute("height", this.size[1] * this.zoom);
  }

  fit() {
    this.scale(Math.min(1.25, (this.window.clientWidth - 4) / this.size[0]));
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.scale(this.zoom * (event.deltaY > 0 ? 1 / 1.1 : 1.1));
  }

  key(event) {
    const now = event.target.closest?.(".node");
    if (!now) return;
    if (event.key === "Enter" || event.key === " ") now.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (event.key === "Escape" && this.picked?.parent?.parent) this.act(this.picked.parent);
    else if (ARROWS[event.key]) this.step(now, ARROWS[event.key]);
    else return;
    event.preventDefault();
  }

  /** Moves the focus to the nearest node in a direction. */
  step(now, direction) {
    const next = nearest(now, this.svg.querySelectorAll(".node"), direction);
    if (next) this.bring(next, false);
  }
}
