// Bytes and times of collectives: by mesh axes, by collective, and the most expensive ones.

import { bar, h, link, table } from "./elements.js";
import { bytes, count, rate, share, time } from "./units.js";

/** Returns the view of a plan's collectives. `show(name)` returns a function that opens a value in the graph, if it is
 * there.
 * @param {import("./types").Sheet} sheet */
export function communicationView({ cost, mesh, hardware }, show) {
  if (!cost.by_collective.length) return h("p", {}, "The plan has no collectives.");
  return h(
    "div",
    { class: "communication-view" },
    byAxis(cost, mesh, hardware),
    byCollective(cost),
    topCollectives(cost, show),
  );
}

function byAxis({ by_axis: found, by_collective: groups, step_s: step }, mesh, hardware) {
  const sizes = Object.fromEntries(
    mesh.axes.map((axis, k) => [axis.name, { size: axis.size, link: hardware.axis_links[k].bandwidth }]),
  );
  const most = Math.max(1, ...Object.values(found));
  const seconds = (axes) =>
    groups.filter((each) => each.axes.join(",") === axes).reduce((sum, each) => sum + each.time_s, 0);
  const rows = Object.entries(found)
    .sort((a, b) => b[1] - a[1])
    .map(([axes, size]) => [
      axes,
      axes
        .split(",")
        .map((name) => sizes[name].size)
        .reduce((a, b) => a * b, 1)
        .toString(),
      rate(Math.min(...axes.split(",").map((name) => sizes[name].link))),
      bar(size / most, bytes(size)),
      time(seconds(axes)),
      share(seconds(axes) / step),
    ]);
  return table(
    "By mesh axes: bytes received by the busiest device",
    [
      ["axes"],
      ["devices", "number"],
      ["slowest link", "number"],
      ["bytes", "number"],
      ["time", "number"],
      ["of the step", "number"],
    ],
    rows,
  );
}

function byCollective({ by_collective: groups, step_s: step }) {
  const most = Math.max(1e-12, ...groups.map((each) => each.time_s));
  const rows = groups.map((each) => [
    each.collective,
    each.axes.join(", "),
    count(each.count),
    bytes(each.bytes),
    bar(each.time_s / most, time(each.time_s), "communication"),
    share(each.time_s / step),
  ]);
  return table(
    "By collective",
    [["collective"], ["axes"], ["count", "number"], ["bytes", "number"], ["time", "number"], ["of the step", "number"]],
    rows,
  );
}

/** Returns a value's name, as a link where `show` returns a function that opens the value in the graph. */
function named(value, show) {
  const act = show?.(value);
  return act ? link(value, act) : h("bdi", {}, value);
}

function topCollectives({ top_collectives: found, step_s: step }, show) {
  const rows = found.map((each) => [
    each.collective,
    each.axes.join(", "),
    named(each.value, show),
    bytes(each.bytes),
    time(each.time_s),
    share(each.time_s / step),
  ]);
  return table(
    "Most expensive collectives",
    [["collective"], ["axes"], ["of value"], ["bytes", "number"], ["time", "number"], ["of the step", "number"]],
    rows,
  );
}
