// Types of the data that the pages read: parts of the report and capacity documents.

export interface Axis {
  name: string;
  size: number;
}

export interface Collectives {
  collective: string;
  axes: string[];
  count: number;
  time_s: number;
  bytes: number;
}

export interface Overlap {
  step_s: number;
  lower_bound_s: number;
  scheduled_s: number;
  peak_bytes: number;
}

export interface Interval {
  low_s: number;
  high_s: number;
  out_of_range_s: number;
}

export interface Cost {
  interval?: Interval | null;
  step_s: number;
  compute_s: number;
  communication_s: number;
  recompute_s: number;
  model_flops?: number | null;
  mfu?: number | null;
  overlap?: Overlap | null;
  collective_bytes: number;
  by_collective: Collectives[];
  by_axis: Record<string, number>;
  top_collectives: { collective: string; axes: string[]; value: string; time_s: number; bytes: number }[];
}

export interface Memory {
  peak_bytes: number;
  at: string;
  by_kind: Record<string, number>;
  timeline: { kind: string; moments: number[]; bytes: number[] }[];
}

export interface Solver {
  status: string;
  objective_s: number | null;
  bound_s: number;
  gap: number | null;
  wall_s: number | null;
  reason: string;
  reproducible: boolean;
  memory_price_s_per_gib: number;
  least_limit_bytes: number | null;
  least_limit_bound_bytes: number | null;
  objective_bytes?: number | null;
  bound_bytes?: number | null;
  folding?: { layers: number[]; variables: number; total_variables: number; unfolded: boolean } | null;
  versions: Record<string, number>;
}

export interface Request {
  objective: string;
  memory_limit_bytes: number;
  gap: number;
  deterministic: boolean;
  recompute?: string;
  seed: number;
}

export interface Figures {
  name: string;
  step_s: number;
  collective_bytes: number;
  peak_bytes: number;
  fits: boolean;
}

/** The columns of a program (`planner.documents.report_graph`). Text is an index into `strings`. */
export interface Columns {
  strings: string[];
  values: {
    id: string[];
    kind: number[];
    name: string[];
    type: number[];
    sharding: number[];
    local: number[];
    bytes: number[];
  };
  collectives: { collective: number[]; axes: number[]; sharding: number[]; time_ps: number[]; bytes: number[] };
  ops: {
    id: string[];
    op: number[];
    scope: number[];
    phase: number[];
    rule: number[];
    attrs: number[];
    split: number[];
    recompute_of: (string | null)[];
    results: number[][];
    time_ps: number[];
    operands: number[][][];
    alternatives: [number, number, number][][];
  };
  outputs: number[][];
  schedule: Schedule;
}

export interface Schedule {
  serial: boolean;
  streams: string[];
  instruction: number[];
  stream: number[];
  start_ps: number[];
  end_ps: number[];
}

/** A plan as the report shows it. */
export interface Sheet {
  id: string;
  graph: { name: string; digest: string; producer?: Record<string, string>; ops: number; inputs: number };
  mesh: { axes: Axis[] };
  hardware: { name: string; overlap?: number; axis_links: { bandwidth: number }[] };
  request: Request;
  solver: Solver;
  cost: Cost;
  memory: Memory;
  baselines: Figures[];
  recomputed?: Record<string, string>;
  verdict: Record<string, any> | null;
  program: Columns | null;
  blocked: {
    limit_bytes: number;
    at: string;
    largest: { value: string; kind: string; producer: string; bytes: number }[];
  } | null;
}

export interface Change {
  name: string;
  what: "op" | "value";
  base_name: string | null;
  base: { time_ps: number } | null;
  new: { time_ps: number } | null;
  change_ps: number;
}

export interface Comparison {
  totals: Record<string, { base: number | null; new: number | null; change: number | null }>;
  terms: Change[];
  changes: Record<string, any>[];
  options: Record<string, any>[];
  memory: { base: Memory; new: Memory; change_bytes: Record<string, number> } | null;
  matching_ops: number | null;
}

export interface Report {
  plan: Sheet;
  compare_to: Sheet | null;
  comparison: Comparison | null;
}

export interface Candidate {
  graph: number;
  hardware: string;
  mesh: string;
  devices: number;
  initial_bound_s: number;
  initial_bound_bytes: number;
  status: string;
  step_s?: number | null;
  step_gap?: number | null;
  low_s?: number | null;
  high_s?: number | null;
  objective_s?: number | null;
  peak_bytes?: number | null;
  mfu?: number | null;
  tokens_per_s?: number | null;
  tokens_per_device_s?: number | null;
  run_days?: number | null;
  run_device_hours?: number | null;
  run_cost?: number | null;
  run_energy_kwh?: number | null;
  skip_reason: string | null;
  dominated_by: string | null;
}

export interface Capacity {
  unit: "step" | "token";
  request: { global_batch?: number | null };
  cost_unit: "price" | "device_s";
  run_tokens?: number | null;
  graphs: { name: string; tokens: number | null; batch?: number | null; microbatches?: number }[];
  hardware: { name: string; price_per_device_hour: number | null }[];
  complete: boolean;
  planned: number;
  candidates: Candidate[];
  frontier: Candidate[];
  smallest_feasible: Candidate | null;
  cheapest: Candidate | null;
  fastest: Candidate | null;
}

/** A value of a program; `readProgram` links it with its producer and readers. */
export interface Value {
  index: number;
  id: string;
  kind: string | null;
  name: string | null;
  type: string;
  sharding: string;
  local: string;
  bytes: number;
  maker: Op | null;
  reads: Read[];
}

export interface Move {
  index: number;
  collective: string;
  axes: string;
  sharding: string;
  time: number;
  bytes: number;
  value: Value | null;
  op: Op | null;
  first?: Read;
}

export interface Read {
  value: Value;
  sharding: string;
  moves: Move[];
  op: Op | null;
  operand: number;
}

export interface Op {
  index: number;
  id: string;
  op: string;
  scope: string;
  phase: string;
  rule: string;
  attrs: string;
  split: string;
  recomputeOf: string | null;
  time: number;
  moved: number;
  results: Value[];
  operands: Read[];
  alternatives: { split: string; compute: number; reshards: number }[];
}

export interface Program {
  values: Value[];
  ops: Op[];
  moves: Move[];
  outputs: Read[];
  step: number;
  schedule: Schedule;
  inputs: Value[];
}

/** A node of the tree over a program: a box, or an op, a graph input or the outputs in it; or a port of a picture. */
export interface Node {
  kind: "box" | "op" | "input" | "outputs" | "port";
  name: string;
  key: string;
  parent: Node | null;
  time: number;
  moved: number;
  ops: number;
  of: any;
  open: boolean;
  children: Node[];
  named: Map<string, Node>;
  inner: any[];
  entering: any[];
  leaving: any[];
  leads?: Node;
  way?: string;
}
