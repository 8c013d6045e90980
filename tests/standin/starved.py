"""Starved: simulated steps of ranks that have no core for some time, as their traces would show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace
from jupyter_mntrain.plan.prediction.simulator import LinkTimes, Simulated, StageTimes, simulate
from jupyter_mntrain.recipe.instructions import make_order, stages_of
from jupyter_mntrain.recipe.schedules import ScheduleName
from tests.standin.traces import traces_of

Late = Mapping[tuple[str, int, int], tuple[float, float]]
"""Seconds by which a rank begins to compute late, and computes longer, by kind, stage and number of
the computation."""

ON_TIME: Late = MappingProxyType({})


class _Uneven(StageTimes):
    """Times of a stage that is late. Its computations of a kind are asked for in order."""

    def late(self, stage: int, late: Late) -> _Uneven:
        self._stage, self._late, self._asked = stage, late, Counter[str]()
        return self

    def of(self, kind: str) -> float:
        number = self._asked[kind]
        self._asked[kind] += 1
        return super().of(kind) + sum(self._late.get((kind, self._stage, number), (0.0, 0.0)))


def starved(
    schedule: ScheduleName,
    times: Sequence[StageTimes],
    microbatches: int,
    link: Callable[[int, int], LinkTimes],
    late: Late = ON_TIME,
) -> tuple[Simulated, dict[Rank, RankTrace]]:
    """A step of one stage per rank, and its traces, in which a computation begins once its rank has
    a core.
    """
    step = simulate(
        make_order(schedule, len(times), microbatches),
        stages_of(schedule, len(times), 1),
        [_Uneven(*one).late(stage, late) for stage, one in enumerate(times)],
        link,
        is_batched=schedule in {"gpipe", "1f1b"},
    )
    found = {}
    for rank, trace in traces_of(step).items():
        done: Counter[str] = Counter()
        actions = []
        for one in trace.actions:
            begins_late_s, _ = late.get((one.kind, rank, done[one.kind]), (0.0, 0.0))
            done[one.kind] += 1
            actions.append(msgspec.structs.replace(one, begin_s=one.begin_s + begins_late_s))
        found[rank] = msgspec.structs.replace(trace, actions=tuple(actions))
    return step, found
