"""The control of a solve: which method runs when, by what is known and by size, not by the clock.

All methods share one incumbent, one bound, one pool of elites, and one dual iterate (multipliers and messages) of one
relaxation, from which strategies are excluded whenever incumbent or bound have moved:

1. the search, with the dual beside it, until both have settled; on a small problem one cycle of the dual and one walk,
   as MIPs are cheap there and finish sooner;
2. messages at the dual's multipliers, and fixing, here and whenever something has been gained: by reduced costs and,
   once half of the gap is closed, by probing (solvers/probing.py). Of a problem that is not small, a hundred branches
   of a proof tree (solvers/branching.py): where several memory limits bind at once, these find what nothing else does;
3. while much is left, it gains and the tree does not, column generation: its master LPs improve the multipliers, its
   cuts the bound, and the MIPs of what its LPs use find assignments that no walk reaches. The search goes on beside the
   LPs, and the next LPs beside a long MIP;
4. MIPs of ever more strategies around the elites, as long as they are much smaller than what is left: the better the
   incumbent, the more is excluded;
5. the MIP of everything that is left, once it is small enough, in a worker process while the search goes on and, where
   that does not help any more, cuts and the tree raise the bound. It is started again only where so much has been
   excluded meanwhile that the rest is a much smaller problem;
6. cuts, and CP-SAT for the proof, once that MIP has ended: CP-SAT is good at proving a cost, not at finding it. Where
   a knapsack is what is left, it is not: the other core grows the tree. Where dual ascent gains nothing, the branches
   of a small problem are bounded by LP duals.

Problems without a search (without a limit, or with usage on edges) come with their multipliers; steps 1 to 4 are then
MIPs of the elites nearest to the bound, with messages and cuts or dives between them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from solvers.branching import Branching
from solvers.column_generation import ColumnGeneration
from solvers.cpsat import prove_bound
from solvers.cut_separation import separate_cuts
from solvers.dive import run_dive
from solvers.dual_lns import WALKS_PER_MIP, DualLnsHybrid
from solvers.isolated_process import Meanwhile
from solvers.probing import Probing
from solvers.relaxation import Relaxation
from solvers.restricted_mip import TIME_MARGIN, solve_restricted_mip
from solvers.restriction import select_promising
from solvers.solve_state import SolveState

# Message rounds between methods, and the gain per round (of the bound) that ends them.
ROUNDS, STALL = 200, 1e-7
# Most pairs of a problem whose MIPs are started before the search has settled, and without column generation.
SMALL_PAIRS = 40_000
# Most pairs of the MIP of everything that is left, and its branch-and-bound nodes where no clock can end it.
MAX_PAIRS, NODES = 100_000, 1000
# Most columns of the MIPs around the elites: as a share of the pairs that are left, and in all.
RECOMBINED_SHARE, MAX_RECOMBINED = 0.7, 40_000
# A MIP is given up for a new one where at most this share of its pairs is left.
SMALLER_SHARE = 0.5
# Pairs of the first MIP near the bound without and with multipliers (capacity rows make it harder), and per edge where
# no clock can end it; twice as many each turn, up to a maximum; its branch-and-bound nodes and share of the time left.
MIP_PAIRS, MIP_PAIRS_WITH_MULTIPLIERS, MIP_PAIRS_WITHOUT_CLOCK = 30_000, 6000, 2
MAX_MIP_PAIRS, MIP_NODES, MIP_SHARE = 200_000, 20, 0.6
# Share of the time left for the MIP of the rest where the proof comes after it, not beside it.
REST_SHARE = 0.5
# Most turns of MIP, messages and cuts; steps of a dive; elites whose peaks above the limit get capacity rows.
MAX_TURNS, DIVE_STEPS, ELITES = 8, 40, 8
# Branches of the proof tree at a time, and in a trial, which gains where it leaves less than this share of the gap.
BRANCHES, TRIAL, TRIAL_SHARE = 50, 100, 0.95
# Pairs of the linear program of cuts.
CUT_PAIRS = 60_000


class Engine:
    """One solve from its root relaxation on. multipliers: the best ones without cuts."""

    def __init__(self, state: SolveState, relaxation: Relaxation, seed: int) -> None:
        self._state, self._relaxation, self._seed = state, relaxation, seed
        # One step of what goes on while a worker is busy.
        self._walk_while: Meanwhile = lambda _: True
        # The incumbent's cost when cuts were last separated, and the number of walks since it last improved.
        self._cut_cost: int | None = None
        self._idle_walks = 0
        self.multipliers = dict(relaxation.multipliers)
        self._branching, self._probing = Branching(state, None), Probing()

    def run(self, search: DualLnsHybrid, processes: int) -> None:
        """Run until the state is exhausted, or until the methods can prove no more and only the search goes on."""
        state, self._walk_while = self._state, search.walk_while
        self.multipliers = search.begin() if self._pairs <= SMALL_PAIRS else search.settle(processes)
        if state.is_exhausted:
            return
        self._branching = Branching(state, search.dual)
        self._relaxation.set_multipliers(self.multipliers)
        self._fix()
        if self._pairs > SMALL_PAIRS and not self._is_tree_gaining():
            self._generate_columns(processes > 1)
        state.meanwhile = self._search_or_branch if processes > 1 else None
        search.recombine(int(min(RECOMBINED_SHARE * self._pairs, MAX_RECOMBINED)))
        state.meanwhile = None
        self._fix(probes=True)
        self._finish(processes > 1)
        if not state.is_exhausted:
            search.run(processes)

    def _is_tree_gaining(self) -> bool:
        """Grow the tree for a trial; return whether dual ascent has closed much of the gap: it then precedes walks."""
        before, branching = self._state.gap or 1.0, self._branching
        branching.grow(self._relaxation, TRIAL)
        is_close = (self._state.gap or 1.0) < TRIAL_SHARE * before
        is_gaining = is_close and branching.dual is not None and branching.can_grow(self._relaxation)
        self._idle_walks = WALKS_PER_MIP if is_gaining else 0
        return is_gaining

    def _generate_columns(self, concurrent: bool) -> None:
        """Generate columns while they gain and much is left. If `concurrent`, the search goes on beside the master LPs,
        and steps go on beside long MIPs."""
        state = self._state
        self._columns = ColumnGeneration(state, self._relaxation, self._seed, postpones=concurrent)
        state.meanwhile = self._search_or_branch if concurrent else None
        while self._columns.can_gain and self._pairs > SMALL_PAIRS and not state.is_exhausted:
            if self._columns.postponed is None:
                self._step_columns()
            else:
                self._columns.solve_postponed(self._step_meanwhile)
        state.meanwhile = None
        self._fix(probes=True)

    def _step_columns(self) -> None:
        self._relaxation = self._columns.step(self._relaxation)
        self.multipliers = self._columns.multipliers
        self._fix()

    def _step_meanwhile(self, has_result: Callable[[], bool]) -> bool:
        """Take one step of column generation or, where none can gain, walk or grow the tree. Returns True."""
        if not self._columns.can_gain:
            return self._search_or_branch(has_result)
        self._step_columns()
        return True

    def _search_or_branch(self, has_result: Callable[[], bool]) -> bool:
        """Walk or, where that does not help any more, grow the tree; in turn where neither does. Returns True."""
        state, before, branching = self._state, self._state.cost, self._branching
        idle = self._idle_walks >= WALKS_PER_MIP and branching.can_grow(self._relaxation)
        if idle and (branching.is_gaining(self._relaxation) or self._idle_walks % 2 == 0):
            branching.grow(self._relaxation, BRANCHES, has_result)
            self._idle_walks += 1
        else:
            self._walk_while(has_result)
            self._idle_walks = 0 if state.cost != before else self._idle_walks + 1
        return True

    def run_without_search(self) -> None:
        """Alternate MIPs near the bound, messages, and dives or cuts, while they close the gap; then prove the rest."""
        state, time_steps = self._state, list[int]()
        for turn in range(MAX_TURNS):
            before, pairs = state.gap or 1.0, self._initial_pairs << turn
            time_steps, complete = self._solve_near_bound(min(pairs, MAX_MIP_PAIRS), time_steps)
            self._fix()
            if state.is_exhausted or self._relaxation.is_done:
                return
            if not self._relaxation.multipliers:
                run_dive(self._relaxation, DIVE_STEPS)
            elif turn:
                self._cut()
            if state.is_exhausted or (
                turn and (complete or pairs >= MAX_MIP_PAIRS) and (state.gap or 1.0) > 0.8 * before
            ):
                break
        self._finish(concurrent=False)

    @property
    def _initial_pairs(self) -> int:
        pairs = MIP_PAIRS_WITH_MULTIPLIERS if self._relaxation.multipliers else MIP_PAIRS
        edges = self._state.problem.arrays.source.size
        return pairs if self._state.seconds_left is not None else min(pairs, MIP_PAIRS_WITHOUT_CLOCK * max(edges, 1))

    def _solve_near_bound(self, pairs: int, time_steps: list[int]) -> tuple[list[int], bool]:
        """Solve the MIP of the strategies of the elites nearest to the bound and submit its assignment.

        time_steps: the first capacity rows, to which the peaks of the nearest elites are added. Returns the time steps
        that had a row at the end, and whether all elites were included.
        """
        state, relaxation = self._state, self._relaxation
        flags, complete = relaxation.nearest(pairs)
        time_steps = [*time_steps, *self._peak_steps()]
        with state.operator("MIP near the bound", pairs):
            result = solve_restricted_mip(
                state,
                relaxation.model.restriction.restricted_to(flags),
                list(dict.fromkeys(time_steps)),
                share=MIP_SHARE,
                nodes=MIP_NODES,
                gap=state.target_gap / 100,
                seed=self._seed,
            )
        return (time_steps if result is None else result.time_steps), complete

    def _peak_steps(self) -> list[int]:
        """Return the time steps with a multiplier, and those at which elites near the bound exceed the limit."""
        return list(dict.fromkeys([*self._relaxation.multipliers, *self._relaxation.peaks_of_elites(ELITES)]))

    def _finish(self, concurrent: bool) -> None:
        """Solve the MIP of everything that is left and prove its answer, while that is small enough."""
        while not self._state.is_exhausted and self._pairs <= MAX_PAIRS and not self._solve_rest(concurrent):
            pass

    @property
    def _pairs(self) -> int:
        return self._relaxation.model.arrays.pairs

    def _fix(self, *, probes: bool = False) -> None:
        """Pass messages and exclude strategies, by probing too where that is due or asked for; continue on a smaller
        problem."""
        state = self._state
        with state.operator("messages", self._pairs):
            if not state.is_exhausted and not self._relaxation.is_done:
                self._relaxation, _ = self._relaxation.pass_until_stalled(ROUNDS, STALL)
            if not state.is_exhausted and not self._relaxation.is_done:
                self._relaxation.free_potentials()
                self._relaxation = self._relaxation.compacted()
        self._relaxation = self._probing.run(self._relaxation, self._branching.dual, at_once=probes)

    def _solve_rest(self, concurrent: bool) -> bool:
        """Solve the MIP of everything that is left, while the search goes on if `concurrent`, and prove its answer.

        Returns whether there is nothing more to try.
        """
        state, relaxation = self._state, self._relaxation
        pairs, cutoff = self._pairs, state.upper_cutoff
        with state.operator("MIP of the rest", pairs):
            result = solve_restricted_mip(
                state,
                relaxation.model.restriction,
                self._peak_steps(),
                share=1.0 if concurrent else REST_SHARE,
                nodes=NODES if state.seconds_left is None else None,
                gap=state.target_gap / 4,
                seed=self._seed,
                meanwhile=partial(self._improve_meanwhile, SMALLER_SHARE * pairs) if concurrent else None,
            )
        if result is not None and np.isfinite(result.bound):
            # What has been excluded costs at least the cutoff.
            state.bound_numeric = min(result.bound, float(cutoff))
        self._fix()
        if result is None and self._pairs <= SMALLER_SHARE * pairs:
            return False
        # A worker that failed would do so again: what it leaves open is for cuts and proofs.
        if state.cost != self._cut_cost:
            self._cut()
        if not state.is_exhausted and not self._relaxation.is_done:
            rows = self._peak_steps() if result is None else result.time_steps
            time_steps = list(dict.fromkeys([*rows, *self._relaxation.multipliers]))
            self._prove(time_steps, concurrent)
        return True

    def _prove(self, time_steps: list[int], concurrent: bool) -> None:
        """Prove the cost by CP-SAT, which may find a cheaper assignment, and by a proof tree: at the same time if
        `concurrent`, else one after the other.

        time_steps: the capacity rows of CP-SAT's model; fewer rows than the problem's only weaken the bound.
        """
        state, restriction = self._state, self._relaxation.model.restriction
        meanwhile = self._search_or_branch if concurrent else None
        cutoff, left = state.upper_cutoff, state.seconds_left
        seconds = None if left is None else TIME_MARGIN * left
        with state.operator("CP-SAT", self._pairs):
            work = partial(prove_bound, restriction.problem, time_steps, cutoff, seconds, self._seed)
            proof = state.run_in_worker(work, meanwhile)
            if proof is not None:
                bound, assignment = proof
                if assignment is not None:
                    state.submit(restriction.postsolve(assignment))
                # The excluded strategies cost at least the cutoff, so the bound of the rest counts only up to it.
                state.raise_lower_bound(min(bound, cutoff))
        while not state.is_exhausted and self._branching.can_grow(self._relaxation):
            self._branching.grow(self._relaxation, BRANCHES)

    def _improve_meanwhile(self, smaller: float, has_result: Callable[[], bool]) -> bool:
        """Take one step on the other core: walk and, where walks do not help any more, separate cuts and grow the tree.

        Returns False once at most `smaller` pairs are left.
        """
        state, before = self._state, self._state.cost
        if self._idle_walks >= WALKS_PER_MIP and state.cost != self._cut_cost:
            self._cut()
        else:
            self._search_or_branch(has_result)
        if state.cost != before:
            self._fix()
        return self._pairs > smaller

    def _cut(self) -> None:
        """Separate cuts, and exclude strategies by the bound that they prove."""
        state, relaxation = self._state, self._relaxation
        if state.is_exhausted or relaxation.is_done:
            return
        with state.operator("cuts", self._pairs):
            known = relaxation.incumbent_flags()
            flags = select_promising(relaxation.model.arrays, relaxation.min_marginals(), known, pairs=CUT_PAIRS)
            self._relaxation, _ = separate_cuts(state, relaxation, flags, time_steps=list(relaxation.multipliers))
            self._cut_cost = state.cost
        self._fix()
