"""Draws: simulated jobs by seed, and whether what was said of them is right."""

from __future__ import annotations

import math
import random

from jupyter_mntrain.model.failure.problem import Problem
from tests.agent.warnings.slowness.simulation import FAULTS, OF_LINKS, Fault, Pipeline, Reports


def drawn(seed: int, *, is_slowed: bool) -> Pipeline:
    """A job by its seed; with a slowdown to about a third, or without."""
    chance = random.Random(seed)
    reports: Reports = chance.choices(("everything", "steps", "nothing"), (3, 3, 2))[0]
    made = Pipeline(
        chance,
        nodes=chance.choice((2, 2, 3, 4)),
        per_node=chance.choice((1, 1, 2)),
        step_s=math.exp(chance.uniform(math.log(0.05), math.log(3.0))),
        noise=chance.choice((0.02, 0.05, 0.1, 0.2)),
        send_share=chance.uniform(0.1, 0.5),
        reports=reports,
        save_every=chance.choice((0, 20, 100)),
        save_steps=chance.uniform(0.2, 8),
        evaluate_every=0 if is_slowed else chance.choice((0, 100)),
    )
    if is_slowed:
        faults = [one for one in FAULTS if reports != "nothing" or one in TOLD_BY_COUNTERS]
        what = chance.choice(faults)
        rank = chance.randrange(made.world)
        if what in OF_LINKS:  # the link from the last rank of a node to the next one
            rank = chance.randrange(made.nodes) * made.per_node + made.per_node - 1
        begin_s = chance.uniform(120, 180)
        made.fault = Fault(what, rank, begin_s, chance.uniform(2.6, 3.4))
        if what == "save":  # one that takes longer than 10 s is a stall
            made.save_every = 20
            made.step_s = chance.uniform(0.05, 0.15)
            made.__post_init__()
    return made


TOLD_BY_COUNTERS = ("throttled", "starved", "stopped", "disk", "narrow", "lossy", "other traffic")
"""Slowdowns that are known without a Recorder: something outside of the script changed."""


def verdict(made: Pipeline, limit_s: float) -> tuple[float, Problem] | None:
    """When the culprit was named after the slowdown began, and who: the first of all words that
    is not "not known"; else the last.
    """
    fault = made.fault
    assert fault is not None
    said = None
    for now_s, known in made.run(fault.begin_s + limit_s):
        if known and (said is None or known[-1].problem != said[1]):
            said = (now_s - fault.begin_s, known[-1].problem)
            if said[1].kind != "slow":
                break
    return said


def limit_s(made: Pipeline) -> float:
    """How long it may take until it is said: 20 s, or four of the slower steps, or two saves."""
    fault = made.fault
    assert fault is not None
    if fault.what == "save":
        return 20.0 + 2 * made.save_every * made.step_s * fault.times
    return max(20.0, 4 * made.step_s * fault.times)


def is_right(made: Pipeline, problem: Problem) -> bool:
    """Whether the slowed rank or link is named, with the right kind."""
    fault = made.fault
    assert fault is not None
    node, peer = made.node_of(fault.rank), made.node_of((fault.rank + 1) % made.world)
    if problem.kind not in fault.kinds(made.reports):
        return False
    return problem.node in (node, peer) if fault.what in OF_LINKS else problem.rank == fault.rank
