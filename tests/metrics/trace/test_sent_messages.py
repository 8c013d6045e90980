"""Sent messages: whether a link is slow can be told from ranks that are, in any simulated step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.summary import OffPlan
from jupyter_mntrain.metrics.trace.off_plan import Measured, off_plan
from jupyter_mntrain.metrics.trace.sent_messages import (
    LEAST_STEPS,
    Pair,
    RecentMessages,
    SentMessages,
    sent_in,
)
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace
from jupyter_mntrain.model.records.plan import (
    DeviceSpeed,
    LinkSpeed,
    Plan,
    PlannedLink,
    PlannedRank,
)
from jupyter_mntrain.plan.prediction.simulator import LinkTimes, Simulated, StageTimes
from jupyter_mntrain.recipe.schedules import ScheduleName
from tests.standin.jobs import history, view
from tests.standin.plans import MESSAGES
from tests.standin.starved import ON_TIME, Late, starved
from tests.standin.traces import LINK, TIMES, UPDATE_S, traces_of, walked

R0, R1 = Rank(0), Rank(1)
STEPS = (3, 5, 10)
Slower = Mapping[Pair, float]


class Pipeline(NamedTuple):
    """One stage per rank, all alike, and links that are."""

    schedule: ScheduleName
    ranks: int
    microbatches: int
    link: LinkTimes

    @property
    def pairs(self) -> list[Pair]:
        onward = [(Rank(one), Rank(one + 1)) for one in range(self.ranks - 1)]
        return [*onward, *((two, one) for one, two in onward)]

    def step(
        self,
        slower: Slower = MappingProxyType({}),
        factors: Sequence[float] = (),
        late: Late = ON_TIME,
    ) -> tuple[Simulated, dict[Rank, RankTrace]]:
        def link(sender: int, receiver: int) -> LinkTimes:
            factor = slower.get((Rank(sender), Rank(receiver)), 1.0)
            return LinkTimes(self.link.latency, factor * self.link.occupied)

        times = [
            StageTimes(*(factor * each for each in TIMES[:4]))
            for factor in factors or (1.0,) * self.ranks
        ]
        return starved(self.schedule, times, self.microbatches, link, late)

    @property
    def plan(self) -> Plan:
        step, _ = self.step()
        speed = LinkSpeed(1e6 / self.link.occupied, self.link.latency, is_measured=True)
        device = DeviceSpeed(1e9, is_measured=True)
        return Plan(
            step_s=step.seconds + UPDATE_S,
            tokens_per_s=1.0,
            ranks=tuple(
                PlannedRank(f"node{rank}", "CPU", device, (1,), step.computing_s(rank), 0.1, 1e9)
                for rank in range(self.ranks)
            ),
            links=tuple(
                PlannedLink(*pair, speed, self.microbatches * 1e6, 0.1) for pair in self.pairs
            ),
        )

    def off(self, steps: Sequence[tuple[Simulated, dict[Rank, RankTrace]]]) -> OffPlan | None:
        """What is said of steps, of which the last one is measured, too."""
        traces = [traces for _, traces in steps]
        computing = {
            rank: sum(
                one.end_s - one.begin_s for one in trace.actions if one.kind in {"F", "B", "I", "W"}
            )
            for rank, trace in traces[-1].items()
        }
        step_s = traces[-1][R0].step_s
        return off_plan(self.plan, Measured(step_s, computing, sent_in(traces)))


PIPELINES = st.builds(
    Pipeline,
    st.sampled_from(["gpipe", "1f1b", "eager-1f1b"]),
    st.integers(2, 4),
    st.integers(2, 6),
    st.builds(LinkTimes, st.floats(0.00001, 0.02), st.floats(0.00005, 0.1), st.just(0.0)),
)


@given(PIPELINES, st.data())
def test_a_slower_link_is_named_first(pipeline: Pipeline, data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(pipeline.pairs))
    slow = pipeline.step({pair: data.draw(st.floats(2.0, 2000.0))})
    assume(slow[0].seconds + UPDATE_S > 1.11 * pipeline.plan.step_s)
    found = pipeline.off([slow] * LEAST_STEPS)
    assert found is not None
    assert found.causes
    assert (found.causes[0].kind, found.causes[0].rank, found.causes[0].peer) == ("link", *pair)


@given(PIPELINES, st.data())
def test_a_slower_rank_is_named_and_no_link(pipeline: Pipeline, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, pipeline.ranks - 1))
    factors = [1.0] * pipeline.ranks
    factors[slow] = data.draw(st.floats(1.3, 20.0))
    found = pipeline.off([pipeline.step(factors=factors)] * LEAST_STEPS)
    if found is not None:
        assert [(one.kind, one.rank) for one in found.causes] == [("computing", slow)]


@given(PIPELINES, st.data())
def test_a_rank_without_a_core_for_a_while_makes_no_link_slow(
    pipeline: Pipeline, data: st.DataObject
) -> None:
    """Whenever it has none, in all recorded steps but one."""
    kinds = st.sampled_from("FB")
    ranks = st.integers(0, pipeline.ranks - 1)
    numbers = st.integers(0, pipeline.microbatches - 1)
    seconds = st.tuples(st.floats(0, 5), st.floats(0, 5))
    late = st.dictionaries(st.tuples(kinds, ranks, numbers), seconds, max_size=8)
    steps = [pipeline.step(late=data.draw(late)) for _ in range(LEAST_STEPS - 1)]
    steps.insert(data.draw(st.integers(0, len(steps))), pipeline.step())
    found = pipeline.off(steps)
    assert found is None or "link" not in {one.kind for one in found.causes}


def test_ranks_that_always_wait_for_a_core_hardly_ever_make_a_link_slow() -> None:
    """Before each computation, and within. All of few waits may be long by chance, so not never."""

    def is_called_slow(seed: int) -> bool:
        random = Random(seed)
        link = LinkTimes(random.uniform(0.00001, 0.02), random.uniform(0.00005, 0.1), 0.0)
        schedule = random.choice(["gpipe", "1f1b", "eager-1f1b"])
        pipeline = Pipeline(schedule, random.randint(2, 4), random.randint(2, 6), link)
        starving = random.sample(range(pipeline.ranks), random.randint(1, pipeline.ranks))
        mean_s = random.uniform(0.001, 0.5)

        def late() -> Late:
            return {
                (kind, rank, number): (
                    random.expovariate(1 / mean_s),
                    random.expovariate(1 / mean_s),
                )
                for kind in "FB"
                for rank in starving
                for number in range(pipeline.microbatches)
            }

        found = pipeline.off([pipeline.step(late=late()) for _ in range(LEAST_STEPS)])
        return found is not None and "link" in {one.kind for one in found.causes}

    assert sum(map(is_called_slow, range(300))) <= 3


def test_messages_are_those_of_the_recorded_steps_whatever_the_clocks_say() -> None:
    slow = LinkTimes(latency=0.02, occupied=0.09)
    for clocks in ((), (0.0, 5.0)):
        found = sent_in([traces_of(walked(link=slow), clocks=clocks)] * LEAST_STEPS)
        assert set(found) == {(0, 1), (1, 0)}
        for one in found.values():
            assert one.number == MESSAGES
            assert one.least_s == pytest.approx(sum(slow))
            assert one.late_s == pytest.approx(0.0)
            assert max(one.waits_s) >= sum(slow)


def test_what_kept_messages_in_some_recorded_steps_is_not_the_links() -> None:
    late = LinkTimes(latency=0.5, occupied=LINK.occupied)
    times = zip(STEPS, (late, LINK, late), strict=True)
    told = [traces_of(walked(link=one), number=number) for number, one in times]
    both = {f"node{rank + 1}": [traces[Rank(rank)] for traces in told] for rank in range(2)}
    messages = RecentMessages()

    def job(node1: Sequence[RankTrace], node2: Sequence[RankTrace]) -> JobHistory:
        return history(view("running", "running"), {"node1": node1, "node2": node2})

    def least(found: Mapping[Pair, SentMessages]) -> list[float]:
        return [found[R0, R1].least_s, found[R1, R0].least_s]

    assert messages.of(job(both["node1"][:2], both["node2"][:2])) == {}, "too few"
    assert messages.of(job(both["node1"], both["node2"][:2])) == {}, "not all told"
    assert least(messages.of(job(both["node1"], both["node2"]))) == pytest.approx([sum(LINK)] * 2)
