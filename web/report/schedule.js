// The schedule of ops and collectives: a row for compute and one per link, on a canvas that zooms.

import { facts, h } from "./elements.js";
import { bytes, marks, ps, round, share, time } from "./units.js";

const ROW = 40,
  TOP = 8,
  AXIS = 26,
  NAMES = 110;
const PHASES = ["forward", "backward", "update"];
const CLASSES = [...PHASES, "recomputed", "collective"];

/** Returns the view of a plan's schedule; `show` (or null) opens an op in the graph. */
export function scheduleView(sheet, program, show) {
  return new ScheduleView(sheet, program, show).element;
}

class ScheduleView {
  /** @param {import("./types").Sheet} sheet
   * @param {import("./types").Program} program
   * @param {((op: import("./types").Op) => void) | null} show */
  constructor({ cost, request }, program, show) {
    this.show = show;
    this.streams = program.schedule.streams;
    this.rows = rowsOf(program);
    this.length = Math.max(1, ...program.schedule.end_ps);
    this.from = 0;
    this.to = this.length;
    this.isDragged = false;
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `Schedule of ${ps(this.length)}; arrows move, plus and minus zoom`,
      onpointermove: (event) => this.point(event),
      onpointerdown: (event) => this.grab(event),
      onclick: (event) => this.pick(event),
      onwheel: (event) => this.wheel(event),
      onkeydown: (event) => this.key(event),
    });
    this.told = h(
      "output",
      { class: "told quiet" },
      "Point at a bar to see what it is. Drag to move, hold Ctrl and scroll to zoom.",
    );
    const overlap = cost.overlap;
    const serial = program.schedule.serial;
    const button = (text, what, act) =>
      h("button", { type: "button", title: what, "aria-label": what, onclick: act }, text);
    this.element = h(
      "div",
      { class: "schedule" },
      facts([
        [
          "step with overlap",
          `${ps(this.length)}${serial ? ": nothing overlaps, because there are no collectives or no overlapped schedule fits in memory" : ""}`,
        ],
        ["without overlap", time(cost.step_s)],
        ["lower bound", overlap && `${time(overlap.lower_bound_s)}, for any order of the instructions`],
        ["peak memory with overlap", overlap && `${bytes(overlap.peak_bytes)} of ${bytes(request.memory_limit_bytes)}`],
        ...this.streams.map((name, k) => [
          `${name} busy`,
          share(this.rows[k].reduce((sum, each) => sum + each.end - each.start, 0) / this.length),
        ]),
      ]),
      h(
        "div",
        { class: "toolbar" },
        h(
          "span",
          { class: "buttons" },
          button("−", "Zoom out", () => this.scale(1.6)),
          button("+", "Zoom in", () => this.scale(1 / 1.6)),
          button("whole step", "Show the whole step", () => this.set(0, this.length)),
        ),
        h(
          "div",
          { class: "legend" },
          CLASSES.map((name) => h("span", {}, h("i", { class: `swatch ${name}` }), name)),
        ),
      ),
      this.canvas,
      this.told,
    );
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  draw() {
    const wide = this.canvas.clientWidth,
      high = TOP + ROW * this.streams.length + AXIS,
      dots = devicePixelRatio || 1;
    if (!wide) return;
    Object.assign(this.canvas, { width: wide * dots, height: high * dots });
    this.canvas.style.setProperty("height", `${high}px`);
    const style = getComputedStyle(this.canvas),
      colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = this.canvas.getContext("2d");
    pen.scale(dots, dots);
    pen.font = `12px ${style.fontFamily}`;
    const x = (at) => NAMES + ((at - this.from) / (this.to - this.from)) * (wide - NAMES);
    this.axis(pen, x, wide, high, colour);
    this.rows.forEach((row, k) => {
      const y = TOP + k * ROW;
      for (const each of row) {
        if (each.end < this.from || each.start > this.to) continue;
        const [left, right] = [Math.max(x(each.start), NAMES), Math.min(x(each.end), wide)];
        pen.fillStyle = colour(each.what);
        pen.fillRect(left, y + 4, Math.max(right - left - (right - left > 3 ? 0.7 : 0), 0.6), ROW - 12);
        if (right - left > 60)
          this.write(pen, each.name, left, right, y, colour(each.what === "collective" ? "on-collective" : "on-phase"));
      }
      pen.fillStyle = colour("quiet");
      pen.fillText(this.streams[k], 0, y + ROW / 2 + 2, NAMES - 8);
    });
  }

  write(pen, name, left, right, y, colour) {
    const most = Math.floor((right - left - 8) / 6.6);
    pen.fillStyle = colour;
    pen.fillText(name.length > most ? `${name.slice(0, most - 1)}…` : name, left + 4, y + ROW / 2 + 2);
  }

  axis(pen, x, wide, high, colour) {
    const size = marks(this.to - this.from, 6)[1] ?? this.to;
    pen.fillStyle = colour("quiet");
    for (let at = Math.ceil(this.from / size) * size; at <= this.to; at += size) {
      pen.fillRect(x(at), TOP, 0.5, high - AXIS);
      const text = round(at);
      pen.fillText(text, Math.min(x(at) + 3, wide - pen.measureText(text).width), high - 8);
    }
  }

  /** Returns the instruction under the pointer. */
  at(event) {
    const box = this.canvas.getBoundingClientRect(),
      wide = box.width - NAMES;
    const row = this.rows[Math.floor((event.clientY - box.y - TOP) / ROW)];
    const when = this.from + ((event.clientX - box.x - NAMES) / wide) * (this.to - this.from);
    const near = (2 * (this.to - this.from)) / wide;
    return (
      row?.find((each) => each.start <= when && when <= each.end) ??
      row?.find((each) => each.start - near <= when && when <= each.end + near)
    );
  }

  point(event) {
    const found = this.at(event);
    this.canvas.classList.toggle("points", Boolean(found));
    if (found)
      this.told.replaceChildren(`${found.name}: ${found.more}, ${ps(found.end - found.start)} from ${ps(found.start)}`);
  }

  pick(event) {
    const found = this.at(event);
    if (found?.op && this.show && !this.isDragged) this.show(found.op);
  }

  grab(event) {
    const [begin, from, to] = [event.clientX, this.from, this.to];
    const scale = (to - from) / (this.canvas.clientWidth - NAMES);
    this.isDragged = false;
    const move = (next) => {
      this.isDragged ||= Math.abs(next.clientX - begin) > 3;
      this.set(from - (next.clientX - begin) * scale, to - (next.clientX - begin) * scale);
    };
    const stop = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const part = (event.offsetX - NAMES) / (this.canvas.clientWidth - NAMES);
    this.scale(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, part));
  }

  key(event) {
    const step = (this.to - this.from) / 8;
    const acts = {
      ArrowLeft: () => this.set(this.from - step, this.to - step),
      ArrowRight: () => this.set(this.from + step, this.to + step),
      "+": () => this.scale(1 / 1.6),
      "-": () => this.scale(1.6),
      Home: () => this.set(0, this.length),
    };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  }

  scale(by, part = 0.5) {
    const middle = this.from + (this.to - this.from) * part,
      wide = (this.to - this.from) * by;
    this.set(middle - wide * part, middle + wide * (1 - part));
  }

  set(from, to) {
    const wide = Math.min(Math.max(to - from, 1000), this.length);
    this.from = Math.min(Math.max(from, 0), this.length - wide);
    this.to = this.from + wide;
    this.draw();
  }
}

/** Returns the instructions of every stream in the order of their start. */
function rowsOf(program) {
  const { streams, instruction, stream, start_ps: starts, end_ps: ends } = program.schedule;
  const rows = streams.map(() => []);
  instruction.forEach((number, k) => {
    const is = number >= 0 ? program.ops[number] : program.moves[-1 - number];
    const run =
      number >= 0
        ? {
            name: is.id,
            more: `${is.op}${is.split ? ` [${is.split}]` : ""}`,
            what: is.recomputeOf ? "recomputed" : is.phase,
            op: is,
          }
        : {
            name: `${is.collective} ${is.axes}`,
            more: `of ${is.value?.id ?? "a value"}, ${bytes(is.bytes)} received`,
            what: "collective",
            op: is.op,
          };
    if (ends[k] > starts[k]) rows[stream[k]].push({ ...run, start: starts[k], end: ends[k] });
  });
  return rows.map((row) => row.sort((a, b) => a.start - b.start));
}
