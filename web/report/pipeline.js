// The plan of a pipeline: its figures, the schedule as a Gantt chart with a row for each rank, and the stages.

import { bar, facts, h, resized, s, table, tint } from "./elements.js";
import { mesh } from "./summary.js";
import { bytes, count, marks, share, time } from "./units.js";

const KINDS = ["forward", "backward", "weight", "update", "send"];
const ROW = 30,
  SEND = 6,
  LEFT = 60,
  AXIS = 24;

/** Returns the view of a pipeline's document. */
export function pipelineView(plan) {
  const { cost, schedule } = plan;
  const title = h("h1", {}, h("bdi", {}, plan.graph.name), h("small", {}, ` in stages on ${plan.hardware.name}`));
  return h(
    "div",
    { class: "report" },
    h("header", {}, title),
    h("p", { class: "headline" }, lead(plan)),
    cost && [
      facts([
        ["schedule", `${schedule.name}, ${count(schedule.microbatches)} micro-batches`],
        ["devices", `${count(cost.devices)} in ${count(schedule.ranks)} ranks`],
        ["mesh of each rank", plan.request.pipeline.meshes?.join(" / ") ?? mesh(plan)],
        ["expected between", cost.low_s && `${time(cost.low_s)} and ${time(cost.high_s)}`],
        ["bubble", share(cost.bubble)],
        ["model FLOPs utilisation", share(cost.mfu)],
        ["sent between stages", `${bytes(cost.sent_bytes)} in a step, by all devices`],
        ["peak memory", `${bytes(cost.peak_memory_bytes)} per device`],
      ]),
      h("h2", {}, "Schedule"),
      legend(),
      resized((wide) => [gantt(plan, wide)]),
      stages(plan),
    ],
  );
}

function lead({ solver, cost }) {
  if (!cost) return `${solver.status}: ${solver.reason}`;
  return `Step ${time(cost.step_s)}, proven not below ${time(solver.bound_s)} (gap ${share(solver.gap)}, ${solver.reason})`;
}

const legend = () =>
  h(
    "div",
    { class: "legend" },
    KINDS.map((kind, k) => h("span", {}, h("i", { class: `swatch ${tint(k)}` }), kind)),
    h("span", {}, "blank: idle"),
  );

function gantt(plan, wide) {
  const step = plan.cost.step_s;
  const x = (seconds) => LEFT + ((wide - LEFT) * seconds) / step;
  const high = ROW * plan.timeline.length + AXIS;
  const box = (kind, rank, begin, end, says) =>
    s(
      "rect",
      {
        x: x(begin).toFixed(2),
        width: Math.max(x(end) - x(begin), 0).toFixed(2),
        y: ROW * rank + (kind === "send" ? ROW - SEND - 2 : 2),
        height: kind === "send" ? SEND : ROW - SEND - 4,
        class: tint(KINDS.indexOf(kind)),
      },
      s("title", {}, `${says}: ${time(begin)} to ${time(end)}`),
    );
  const rows = plan.timeline.map((tasks, rank) => {
    const spans = tasks.flatMap(({ kind, stage, microbatch, begin_s, end_s }) => {
      const says = `${kind} of micro-batch ${microbatch} in stage ${stage}`;
      const sent = { forward: plan.stages[stage].send_forward_s, backward: plan.stages[stage].send_backward_s }[kind];
      const task = box(kind, rank, begin_s, end_s, says);
      return sent ? [task, box("send", rank, end_s, end_s + sent, `send after ${says}`)] : [task];
    });
    const updates = plan.stages.filter((stage) => stage.rank === rank).map((stage) => stage.update_s);
    const ends = tasks.at(-1)?.end_s ?? 0;
    const update = box("update", rank, ends, ends + updates.reduce((sum, one) => sum + one, 0), "update");
    const name = s("text", { x: LEFT - 8, y: ROW * (rank + 0.6), class: "end" }, `rank ${rank}`);
    return s("g", {}, name, spans, update);
  });
  const ticks = marks(step, 6).map((at) => s("text", { x: x(at), y: high - 6 }, time(at)));
  const says = `Schedule of ${time(step)} with a row for each rank`;
  return s("svg", { width: wide, height: high, role: "img", "aria-label": says }, rows, ticks);
}

function stages(plan) {
  const most = Math.max(...plan.stages.map((stage) => stage.peak_memory_bytes));
  const rows = plan.stages.map((stage, number) => [
    String(number),
    String(stage.rank),
    stage.layers.length > 1 ? `${stage.layers[0]} … ${stage.layers.at(-1)}` : (stage.layers[0] ?? "–"),
    time(stage.forward_s),
    time(stage.backward_s + stage.weight_s),
    time(stage.send_forward_s + stage.send_backward_s),
    time(stage.update_s),
    time(stage.step_s),
    count(stage.in_flight[0] + stage.in_flight[1]),
    bar(stage.peak_memory_bytes / most, bytes(stage.peak_memory_bytes)),
  ]);
  const numbers = ["forward", "backward", "sends", "update", "all passes", "others in flight"];
  const columns = [["stage", "number"], ["rank", "number"], ["layers"], ...numbers.map((name) => [name, "number"])];
  return table("Stages", [...columns, ["peak per device", "number"]], rows);
}
