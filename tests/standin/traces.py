"""Traces: what ranks would record of a simulated step, each by its own clock."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace, TracedAction
from jupyter_mntrain.plan.prediction.simulator import LinkTimes, Simulated, StageTimes, simulate
from jupyter_mntrain.recipe.instructions import make_order, stages_of
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName

TIMES = StageTimes(forward=0.1, backward=0.2, inputs=0.1, weights=0.1)
UPDATE_S = 0.05
LINK = LinkTimes(latency=0.01, occupied=0.04)


def walked(
    schedule: ScheduleName = "eager-1f1b",
    ranks: int = 2,
    microbatches: int = 4,
    link: LinkTimes = LINK,
) -> Simulated:
    per_rank = KINDS[schedule].stages_per_rank
    return simulate(
        make_order(schedule, ranks, microbatches, stages_per_rank=per_rank),
        stages_of(schedule, ranks, per_rank),
        (TIMES,) * ranks * per_rank,
        lambda _sender, _receiver: link,
        is_batched=schedule in {"gpipe", "1f1b"},
    )


def traces_of(
    step: Simulated, *, number: int = 3, begin_s: float = 100.0, clocks: Sequence[float] = ()
) -> dict[Rank, RankTrace]:
    """Traces of a step by rank.

    Args:
        clocks: seconds by which each rank's clock is fast.
    """
    found = {}
    for rank, computing in enumerate(step.computing):
        actions = [
            TracedAction(one.kind, begin, end, one.stage, one.microbatch)  # type: ignore[arg-type]
            for one, begin, end in computing
        ]
        for (sender, receiver), spans in step.messages.items():
            if sender != rank:
                continue
            for one, *_ in spans:
                done = next(
                    made.end_s
                    for made in actions
                    if (made.stage, made.microbatch) == (one.stage, one.microbatch)
                    and made.kind in ({"F"} if one.kind == "SEND_F" else {"B", "I"})
                )
                actions.append(
                    TracedAction(one.kind, done, done, one.stage, one.microbatch, receiver)  # type: ignore[arg-type]
                )
        end = step.seconds + UPDATE_S
        actions.append(TracedAction("update", step.seconds, end))
        fast_s = clocks[rank] if clocks else 0.0
        found[Rank(rank)] = RankTrace(
            time_s=begin_s + end + fast_s,
            rank=Rank(rank),
            step=number,
            begin_s=begin_s + fast_s,
            step_s=end,
            actions=tuple(sorted(actions, key=lambda one: one.begin_s)),
        )
    return found
