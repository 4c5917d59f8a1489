// The comparison of two plans: changes by op and by value, and the change of every box of the graph.

import { h, link, table } from "./elements.js";
import { bytes, ps, share, signed, time } from "./units.js";

const TITLES = {
  objective_s: "objective",
  step_s: "step",
  compute_s: "compute",
  communication_s: "communication",
  collective_bytes: "bytes received",
  peak_bytes: "peak memory",
};
const MOST = 40;

/** Returns an object whose `of(node)` is the change of a node of the graph; null where there is no other plan.
 * @param {import("./types").Comparison | null} comparison */
export function changesOf(comparison) {
  if (!comparison) return null;
  const times = { op: new Map(), value: new Map() },
    layouts = { op: new Map(), value: new Map() };
  for (const term of comparison.terms) times[term.what].set(term.name, term.change_ps);
  for (const [what, listed] of Object.entries({ value: comparison.changes, op: comparison.options })) {
    for (const each of listed)
      layouts[what].set(each[what], `${each[what]}: ${laidOut(each.base)} → ${laidOut(each.new)}`);
  }
  const known = new Map();
  const own = (node) => {
    const names =
      node.kind === "op"
        ? [["op", node.of.id], ...node.of.results.map((value) => ["value", value.id])]
        : [["value", node.of.id]];
    const found = names.map(([what, name]) => [times[what].get(name) ?? 0, layouts[what].get(name)]);
    const was = found.map(([, text]) => text).filter(Boolean),
      moved = found.reduce((sum, [change]) => sum + change, 0);
    return was.length || moved ? { ps: moved, was } : null;
  };
  const all = (box) => {
    const parts = box.children.map((child) => of(child)).filter(Boolean);
    return parts.length ? { ps: parts.reduce((sum, part) => sum + part.ps, 0), was: [] } : null;
  };
  const of = (node) => {
    if (!known.has(node)) known.set(node, node.kind === "box" ? all(node) : own(node));
    return known.get(node);
  };
  return { of };
}

/** Returns a sharding or an option as text: "dp · tp". */
function laidOut(layout) {
  if (layout === null) return "absent";
  const split = Array.isArray(layout) ? layout : layout.split_axes;
  const partial = layout.partial ? ` partial ${layout.partial.axes.join("/")}` : "";
  return (split.map((axes) => axes.join("/") || "·").join(" ") || "whole") + partial;
}

/** Returns the view of the changes from the other plan to this one. */
export function compareView({ plan, compare_to: other, comparison }, show) {
  const { totals, terms, changes, options, memory } = comparison;
  const alike =
    !terms.length && !changes.length && !options.length && Object.values(totals).every((each) => !each.change);
  const difference =
    plan.graph.digest !== other.graph.digest &&
    h(
      "p",
      { class: "note" },
      `The two graphs differ: ${comparison.matching_ops ?? "an unknown number of"} ops match, of ${other.graph.ops} in the other plan and ${plan.graph.ops} in this one. `,
      "Ops are matched by what they compute and by their neighbours; one without a match counts in full.",
    );
  return h(
    "div",
    {},
    difference,
    alike && h("p", { class: "headline" }, "The plans are equal."),
    total(totals),
    moved(terms, show),
    memory && held(memory),
    laid("Values sharded differently", changes, "value", show),
    laid("Ops split differently", options, "op", show),
  );
}

function total(totals) {
  const rows = Object.entries(totals).map(([key, { base, new: now, change }]) => {
    const shown = key.endsWith("_s") ? time : bytes;
    return [
      TITLES[key] ?? key.replaceAll("_", " "),
      shown(base),
      shown(now),
      change === null ? "–" : signed(change, shown),
      change && base ? signed(change / base, share) : "–",
    ];
  });
  return table(
    "Totals",
    [["what"], ["other plan", "number"], ["this plan", "number"], ["change", "number"], ["", "number"]],
    rows,
  );
}

const named = (each, name, show) => [
  show ? link(name, () => show(name)) : h("bdi", {}, name),
  each.base_name ? ` (was ${each.base_name})` : "",
];

function moved(terms, show) {
  const first = [...terms].sort((a, b) => Math.abs(b.change_ps) - Math.abs(a.change_ps));
  const rows = first
    .slice(0, MOST)
    .map((each) => [
      named(each, each.name, each.new && show),
      each.what === "value" ? "collectives of the value" : "op",
      each.base ? ps(each.base.time_ps) : "–",
      each.new ? ps(each.new.time_ps) : "–",
      signed(each.change_ps, ps),
    ]);
  if (!rows.length) return h("p", {}, "No time changed.");
  const sum = terms.reduce((all, each) => all + each.change_ps, 0);
  rows.push([h("strong", {}, `all ${terms.length}`), "", "", "", signed(sum, ps)]);
  return table(
    "Changes in time; they add up to the change of the step",
    [["what"], ["of"], ["other plan", "number"], ["this plan", "number"], ["change", "number"]],
    rows,
  );
}

function held({ base, new: now, change_bytes: change }) {
  const rows = Object.entries(change).map(([kind, size]) => [
    kind.replaceAll("_", " "),
    bytes(base.by_kind[kind] ?? 0),
    bytes(now.by_kind[kind] ?? 0),
    signed(size, bytes),
  ]);
  return table(
    `Memory at the peaks, while computing ${base.at} and ${now.at}`,
    [["kind"], ["other plan", "number"], ["this plan", "number"], ["change", "number"]],
    rows,
  );
}

function laid(title, listed, what, show) {
  if (!listed.length) return "";
  const rows = listed
    .slice(0, MOST)
    .map((each) => [
      named(each, each[what], each.new && show),
      h("code", {}, laidOut(each.base)),
      h("code", {}, laidOut(each.new)),
    ]);
  if (listed.length > MOST) rows.push([`and ${listed.length - MOST} more`, "", ""]);
  return table(title, [[what], ["other plan"], ["this plan"]], rows);
}
