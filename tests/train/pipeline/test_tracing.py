"""Tracing: two real ranks record steps, which are the schedule's order on one time line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_mntrain.metrics.trace.recorded import spans_of
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankStep, RankTrace
from jupyter_mntrain.model.records.plan import StepSpan
from jupyter_mntrain.recipe.instructions import make_order
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.train.pipeline import steps
from tests.train.ranks import run_ranks
from tests.train.test_command import read, write_text

COMPUTING = frozenset("FBIW")
MICROBATCHES, ACCUMULATION, STEPS = 4, 2, 6


def test_recorded_steps_are_seldom_but_some_of_a_short_run() -> None:
    traced = [made for made in range(1, 5001) if steps.is_traced(made)]
    assert traced == [3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "ahead", "per_rank"),
    [("eager-1f1b", (3, 1), 1), ("1f1b", None, 1), ("zbv", None, 2)],
)
def test_a_recorded_step_is_the_order_of_its_schedule(
    tmp_path: Path, schedule: ScheduleName, ahead: Sequence[int] | None, per_rank: int
) -> None:
    changes = [
        *("model.preset=llama-tiny", f"data.source={write_text(tmp_path / 'text')}"),
        *("data.vocabulary_size=300", "data.sequence_length=16", "train.device=cpu"),
        *(f"train.steps={STEPS}", f"train.batch_size={MICROBATCHES * ACCUMULATION}"),
        *(f"train.accumulation={ACCUMULATION}", f"pipeline.microbatches={MICROBATCHES}"),
        f"pipeline.schedule={schedule}",
        *([f"pipeline.in_flight={[*ahead]}"] if ahead else []),
    ]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    sets = [word for change in changes for word in ("--set", change)]
    ended = run_ranks(recipe, ["n1", "n2"], *sets, metrics=tmp_path / "metrics")
    assert [one.exit_code for one in ended] == [0, 0], ended
    order = make_order(schedule, 2, MICROBATCHES, stages_per_rank=per_rank, ahead=ahead)
    told = [read(tmp_path / "metrics", rank) for rank in (0, 1)]
    traces = [{one.step: one for one in some if isinstance(one, RankTrace)} for some in told]
    assert [[*one] for one in traces] == [[3, 5], [3, 5]]
    for number in (3, 5):
        together = {Rank(rank): traces[rank][number] for rank in (0, 1)}
        step = spans_of(together)
        assert step.step == number
        for rank, spans in enumerate(step.ranks):
            (sample,) = (
                one for one in told[rank] if isinstance(one, RankStep) and one.step == number
            )
            computed = [one for one in spans if one.kind in COMPUTING]
            assert [(one.kind, one.stage, one.microbatch) for one in computed] == [
                (one.kind, one.stage, one.microbatch + again * MICROBATCHES)
                for again in range(ACCUMULATION)
                for one in order[rank]
                if one.computes
            ]
            assert_apart([one for one in spans if one.kind not in {"send", "receive"}])
            assert sample.compute_s is not None
            total = sum(one.end_s - one.begin_s for one in computed)
            # The forward pass of the last stage has its loss, and Python's steps between them.
            assert sample.compute_s <= total + 1e-5
            assert total <= sample.step_s
            assert [one.kind for one in spans if one.kind == "update"] == ["update"] * 2
            assert max(one.end_s for one in spans) <= step.seconds + 1e-6
        for sender, receiver in ((0, 1), (1, 0)):
            sent = [one for one in step.ranks[sender] if one.kind == "send"]
            received = [one for one in step.ranks[receiver] if one.kind == "receive"]
            assert [key(one) for one in sent] == [key(one) for one in received]
            assert len(sent) == ACCUMULATION * sum(
                one.kind.startswith("SEND") for one in order[sender]
            )
            assert {one.peer for one in sent} == {receiver}
            assert all(one.end_s >= one.begin_s for one in sent)


def key(span: StepSpan) -> tuple[float, float, int | None]:
    return span.begin_s, span.end_s, span.microbatch


def assert_apart(spans: Sequence[StepSpan]) -> None:
    """One after another."""
    for before, one in pairwise(spans):
        assert before.end_s <= one.begin_s + 1e-6, (before, one)
