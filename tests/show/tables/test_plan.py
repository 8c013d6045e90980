"""Plan tables: everything that a plan says is in sight, in 80 columns."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import (
    Compressed,
    DeviceSpeed,
    Improvement,
    LinkSpeed,
    OtherPlan,
    Plan,
    PlannedLink,
    PlannedRank,
)
from jupyter_mntrain.show.tables.plans.plan import (
    MOST_GUESSES,
    MOST_RANKS,
    against_equal_split,
    chosen_words,
    compressed_words,
    plan_line,
    plan_view,
)
from tests.wording import says

SPEED = DeviceSpeed(flops_per_s=6e13)
FIRST = PlannedRank(
    node="wopr",
    device="GPU 0, NVIDIA GeForce RTX 4090",
    speed=SPEED,
    layers=(7,),
    computing_s=2.1,
    bubble=0.25,
    memory_bytes=12 << 30,
    memory_limit_bytes=24 << 30,
)
SECOND = msgspec.structs.replace(
    FIRST, node="muthur", layers=(5, 4), computing_s=2.8, bubble=0.0, memory_bytes=25 << 30
)
PLAN = Plan(
    step_s=2.8,
    tokens_per_s=23_483.0,
    chosen={
        "pipeline.schedule": "eager-zero-bubble",
        "pipeline.microbatches": "16",
        "pipeline.split": "[7, 9]",
        "pipeline.in_flight": "[3, 1]",
        "pipeline.deferred": "[0, 2]",
        "memory.checkpointing": "none",
    },
    ranks=(FIRST, SECOND),
    links=(PlannedLink(Rank(0), Rank(1), LinkSpeed(1e8), sent_bytes=1e8, busy=0.656),),
    bottleneck="rank 1's device",
    others=(
        OtherPlan(name="equal split", step_s=7.0, memory_bytes=(1 << 30, 2 << 30)),
        OtherPlan(
            name="second best",
            chosen={"pipeline.schedule": "1f1b", "pipeline.microbatches": "16"},
            step_s=3.5,
        ),
        OtherPlan(
            name="syncing rarely",
            chosen={"data_parallel.replicas": "2"},
            step_s=2.8,
            note="costs loss",
        ),
        OtherPlan(name="data parallel", obstacle="rank 0 needs 26.1 GB of memory and has 24.0 GB"),
    ),
    improvements=(
        Improvement("a 10 Gbit/s link between wopr and muthur", 1.21),
        Improvement("rank 0 as fast as rank 1", 1.1, 1.02, 3.4),
    ),
    guesses=tuple(f"speed of node {number}" for number in range(MOST_GUESSES + 2)),
)


def printed(shown: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(shown, soft_wrap=True)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_everything_is_in_sight_in_80_columns() -> None:
    text = printed(plan_view(PLAN, "Plan for r: 2 ranks on wopr, muthur", program="mntrain"))
    assert max(map(len, text.splitlines())) <= 80
    for figure in ("2.8 s", "23,483", "12.5 %", "65.6 %", "2.50 ×", "75.0 %", "100.0 %"):
        assert figure in text
    for word in ("12.0 GiB of 24.0 GiB", "5 + 4", "equal split", "second best", "1.21 ×"):
        assert word in text
    assert says("2 replicas", text)
    assert "costs loss" in text
    assert "26.1 GB" in text
    assert "0.40 ×" in text
    assert "0.80 ×" in text
    assert says("rank 1's device", text)
    assert "7 / 9" in text
    assert text.count("1f1b") == 1
    assert text.count("16 ") == 1, "of another plan only what differs is said"
    assert f"node {MOST_GUESSES - 1}" in text
    assert says("2 more", text)
    assert "mntrain measure" in text


@pytest.mark.wording
def test_little_is_said_of_a_plan_with_little() -> None:
    alone = Plan(step_s=1.0, tokens_per_s=10.0, ranks=(FIRST,))
    text = printed(plan_view(alone, "Plan for r", program="mntrain"))
    assert "equal split" in text
    assert "n/a" in text
    for absent in ("what would help", "compared with", "Guessed", "Chosen"):
        assert absent not in text


def test_of_many_ranks_the_first_are_shown() -> None:
    many = msgspec.structs.replace(PLAN, ranks=(FIRST,) * (MOST_RANKS + 4))
    assert says("4 more ranks", printed(plan_view(many, "Plan for r", program="mntrain")))


def test_the_equal_split_is_compared_where_it_can_run() -> None:
    assert against_equal_split(PLAN) == 2.5
    assert against_equal_split(msgspec.structs.replace(PLAN, others=PLAN.others[1:])) is None


def test_many_stages_are_said_by_their_least_and_most() -> None:
    assert chosen_words({"pipeline.split": str([1] * 60 + [2] * 4)}) == "split 1 to 2"


def test_a_line_has_step_schedule_and_bottleneck() -> None:
    line = printed(plan_line(PLAN, "eager-zero-bubble"), width=200)
    assert line.count("\n") == 1
    for word in ("2.8 s", "eager-zero-bubble", "rank 1's device"):
        assert word in line


def test_what_is_compressed_is_said_with_its_gain() -> None:
    compressed = msgspec.structs.replace(
        PLAN,
        chosen={**PLAN.chosen, "pipeline.transfer": '["int8"]'},
        compressed=(Compressed("int8", ("wopr", "muthur")),),
        compressed_gain=1.79,
        ranks=(msgspec.structs.replace(FIRST, coding_s=0.28), SECOND),
    )
    said = "8 bits between wopr and muthur: 1.8 × as fast"
    view = printed(plan_view(compressed, "Plan for r", program="mntrain"))
    assert says(said, view)
    assert max(map(len, view.splitlines())) <= 80
    assert says("coding", view)
    assert "10.0 %" in view, "0.28 of 2.8 s"
    assert says(said, printed(plan_line(compressed, "1f1b"), width=200))
    assert not says("coding", printed(plan_view(PLAN, "Plan for r", program="mntrain")))
    assert compressed_words(PLAN) == ""


@pytest.mark.wording
def test_of_several_links_each_is_said_with_its_bits() -> None:
    pairs = [("int8", ("a", "b")), ("int4", ("b", "c")), ("int8", ("c", "d"))]
    asked = msgspec.structs.replace(PLAN, compressed=tuple(Compressed(*one) for one in pairs))
    assert compressed_words(asked) == "8 bits between a and b, c and d; 4 bits between b and c"
    assert chosen_words({"pipeline.transfer": '["int8", "none"]'}) == "transfer int8 / none"
    assert chosen_words({"pipeline.transfer": "none"}) == "transfer none"


def test_why_nothing_may_be_compressed_is_said_in_a_line() -> None:
    old = msgspec.structs.replace(PLAN, uncompressed="the mntrain of muthur is older and cannot")
    for shown in (plan_line(old, "1f1b"), plan_view(old, "Plan for r", program="mntrain")):
        assert says("the mntrain of muthur is older", printed(shown, width=300))


@pytest.mark.wording
def test_what_rests_on_a_guess_is_called_one() -> None:
    measured = msgspec.structs.replace(PLAN, guesses=())
    for plan, word in ((PLAN, "guessed"), (measured, "predicted")):
        assert printed(plan_line(plan, "1f1b"), width=200).startswith(f"{word}: ")
        assert f"{word} step" in printed(plan_view(plan, "Plan for r", program="mntrain"))


def test_hostile_text_of_nodes_is_made_safe() -> None:
    ranks = (msgspec.structs.replace(FIRST, node="wo\x1b[31mpr"),)
    hostile = msgspec.structs.replace(PLAN, ranks=ranks, bottleneck="\x1b]0;x\x07")
    assert "\x1b" not in printed(plan_view(hostile, "Plan for r", program="mntrain"))


def test_ranks_of_several_pipelines_are_counted_as_the_job_counts_them() -> None:
    text = printed(plan_view(PLAN, "Plan for r", program="mntrain", ranks=(0, 3), width=3))
    rows = [line.split()[0] for line in text.splitlines() if " RTX " in line or " GPU" in line]
    assert [row for row in rows if row.isdecimal()] == ["0", "3"]


def test_fsdp_is_called_better_where_it_is_so_beyond_what_its_prediction_is_off() -> None:
    chosen = {"data_parallel.shards": "2"}
    for share, is_better in ((0.5, True), (0.9, False), (2.0, False)):
        other = OtherPlan(name="FSDP", chosen=chosen, step_s=share * PLAN.step_s)
        plan = msgspec.structs.replace(PLAN, others=(other,))
        said = printed(plan_view(plan, "Plan for r", program="mntrain"))
        assert ("Better: FSDP" in said) == is_better
        assert says("2 shards", said)
