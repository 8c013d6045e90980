"""Job series: every number is computed by hand next to it, and none is lost."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import MOST_TEXTS, TEXT_CHARACTERS, SeriesBuilder
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.metrics import (
    ComparedTransfer,
    JournalLine,
    LinkSample,
    RankEvaluation,
    RankStart,
    RankText,
    Sample,
)
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.model.records.sequences import DataPreview, ShownSequence, TokenRun
from tests.standin.jobs import JOB, history, measured_links, place, step, taken, view


def start(rank: int, **fields: Any) -> RankStart:
    basis: dict[str, Any] = {
        "time_s": 0.0,
        "rank": Rank(rank),
        "local_rank": 0,
        "world_size": 2,
        "pid": 1,
        "host": "node",
        "stages": (rank,),
        "peak_flops_per_s": 1000.0,
        "total_steps": 20,
        "schedule": "1f1b",
        "microbatches": 3,
        "neighbors": (1 - rank,),
    }
    return RankStart(**(basis | fields))


def steps(rank: int, count: int, **fields: Any) -> list[Sample]:
    """Two-second steps: one of computing, a tenth in the optimizer, the rest waiting."""
    basis: dict[str, Any] = {
        "step_s": 2.0,
        "tokens": 512,
        "compute_s": 1.0,
        "optimizer_s": 0.2,
        "flops": 400.0,
        "sent_bytes": {1 - rank: 1000},
        "received_bytes": {1 - rank: 500},
        "memory_bytes": 7,
    }
    own = {"loss": 3.0} if rank else {}
    return [
        step(rank, number, **(basis | own | {"time_s": 2.0 * number} | fields))
        for number in range(1, count + 1)
    ]


def two(count: int = 4, **fields: Any) -> dict[str, list[Sample]]:
    return {
        "node1": [start(0), *steps(0, count, **fields)],
        "node2": [start(1), *steps(1, count, **fields)],
    }


def test_a_row_per_step_holds_what_the_formulas_say() -> None:
    series = taken(history(view("running", "running"), two())).whole()
    first = series.ranks[0]
    assert first.tokens_per_s == (256.0,) * 4
    assert first.pace_tokens_per_s == (512.0,) * 4
    assert first.mfu == (0.2,) * 4
    assert first.compute == (0.6,) * 4
    # Two ranks, three microbatches: 1 of 4 slots is idle, so a third of what is computed.
    assert first.schedule_bubble == pytest.approx((1 / 6,) * 4, rel=1e-4)
    assert first.send == ()
    assert first.wait == pytest.approx((0.4 - 1 / 6,) * 4, rel=1e-4)
    who = series.summary.ranks[0]
    assert (who.node, who.stages, first.step) == ("node1", (0,), (1.0, 2.0, 3.0, 4.0))


def test_encoding_is_a_share_where_there_is_any_and_its_newest_comparison_is_kept() -> None:
    plain, samples = two(), two(coding_s=0.1)
    for number, (node, rank) in enumerate((("node1", 0), ("node2", 1))):
        for at, db in ((1, 40.0), (3, 38.5)):
            one = samples[node][at]
            made = (ComparedTransfer(0, is_gradient=bool(rank), ratio_db=db - number),)
            samples[node][at] = msgspec.structs.replace(one, compared_transfers=made)
    series = taken(history(view("running", "running"), samples)).whole()
    who, first = series.summary.ranks[1], series.ranks[0]
    assert first.coding == pytest.approx((0.05,) * 4)
    assert first.wait == pytest.approx((0.35 - 1 / 6,) * 4, rel=1e-4)
    assert who.coding == pytest.approx(0.05)
    assert who.compared_transfers == (ComparedTransfer(0, is_gradient=True, ratio_db=37.5),)
    other = taken(history(view("running", "running"), plain)).whole()
    assert (other.ranks[0].coding, other.summary.ranks[0].coding) == ((), None)
    assert other.summary.ranks[0].compared_transfers == ()


def test_the_job_has_a_row_for_every_step_that_all_ranks_have_finished() -> None:
    samples = two()
    samples["node2"] += steps(1, 9)[4:]
    job = taken(history(view("running", "running"), samples)).whole().job
    assert job.step == (1.0, 2.0, 3.0, 4.0)
    assert job.tokens_per_s == (256.0,) * 4
    assert job.mfu == (0.2,) * 4
    assert job.bubble == (0.5,) * 4
    assert job.loss == (3.0,) * 4


def evaluation(rank: int, number: int, loss: float) -> RankEvaluation:
    return RankEvaluation(time_s=2.0 * number, rank=Rank(rank), step=number, loss=loss)


def test_evaluations_have_rows_of_their_own_which_all_ranks_tell_alike() -> None:
    job = view("running", "running")
    told = {
        node: [samples[0], evaluation(rank, 0, 5.5), *samples[1:], evaluation(rank, 4, 3.25)]
        for rank, (node, samples) in enumerate(two().items())
    }
    begun = history(job, {node: samples[:2] for node, samples in told.items()})
    builder = taken(begun)
    assert builder.whole().evaluation.loss == (5.5,), "before there is any step"
    before = builder.seq
    whole = history(job, told)
    builder.extend(whole, 9.0)
    rows = builder.whole().evaluation
    assert (rows.step, rows.loss, rows.time_s) == ((0.0, 4.0), (5.5, 3.25), (0.0, 8.0))
    assert builder.since(before).evaluation.loss == (3.25,)
    assert builder.whole().job.loss == (3.0,) * 4
    assert builder.summary.evaluation_loss == 3.25


def test_of_what_the_model_wrote_the_newest_is_kept_and_only_what_is_new_is_sent() -> None:
    def text(number: int, words: str) -> RankText:
        return RankText(
            time_s=2.0 * number, rank=Rank(0), step=number, prompt="Who are you?", text=words
        )

    samples = two()
    begun = history(view("running", "running"), {"node1": [start(0), text(0, "x" * 3000)]})
    builder = taken(begun)
    (first,) = builder.whole().texts
    assert (first.step, first.prompt) == (0, "Who are you?"), "before there is any step"
    assert first.text == "x" * TEXT_CHARACTERS + "…"
    before = builder.seq
    told = [text(number, f"I am {number}.") for number in range(1, MOST_TEXTS + 10)]
    samples["node1"] = [start(0), text(0, "x" * 3000), *samples["node1"][1:], *told[:2]]
    builder.extend(history(view("running", "running"), samples), 9.0)
    assert [one.text for one in builder.since(before).texts] == ["I am 1.", "I am 2."]
    assert builder.since(builder.seq).texts == ()
    samples["node1"] += told[2:]
    builder.extend(history(view("running", "running"), samples), 9.0)
    kept = [one.step for one in builder.whole().texts]
    assert kept == list(range(10, MOST_TEXTS + 10))
    assert [one.step for one in builder.since(before).texts] == kept


def test_what_is_trained_on_is_sent_once() -> None:
    data = DataPreview(("a file",), 9, (ShownSequence(8, 0, 3, 1, (TokenRun("text", "a"),)),))
    samples = two()
    first, *steps = samples["node1"]
    samples["node1"] = [msgspec.structs.replace(first, data=data), *steps]
    begun = {node: told[:1] for node, told in samples.items()}
    builder = taken(history(view("running", "running"), begun))
    assert builder.whole().data == builder.since(0).data == data
    before = builder.seq
    builder.extend(history(view("running", "running"), samples), 9.0)
    assert builder.since(before).data is None
    assert builder.whole().data == data


def test_replicas_add_up_and_the_longest_step_counts() -> None:
    samples = {
        "node1": [
            start(0, stages=(0,)),
            *(step(0, one, time_s=4.0 * one - 3, step_s=1.0, tokens=512) for one in (1, 2)),
        ],
        "node2": [
            start(1, stages=(0,)),
            *(step(1, one, time_s=4.0 * one, step_s=4.0, tokens=512) for one in (1, 2)),
        ],
    }
    job = taken(history(view("running", "running"), samples)).whole().job
    assert job.tokens_per_s == (256.0, 256.0)
    assert job.tokens == (1024.0, 2048.0)


def test_tokens_add_up_over_earlier_attempts_and_are_not_known_once_a_step_does_not_say() -> None:
    def tokens(*told: int | None) -> tuple[object, ...]:
        ranks = {
            f"node{rank + 1}": [
                start(rank),
                *(
                    step(rank, number, time_s=2.0 * number, step_s=2.0, tokens=one)
                    for number, one in enumerate(told, 6)
                ),
            ]
            for rank in (0, 1)
        }
        return taken(history(view("running", "running"), ranks)).whole().job.tokens

    assert tokens(512, 512, 500) == (6 * 512.0, 7 * 512.0, 7 * 512.0 + 500)
    assert tokens(512, None, 512) == (6 * 512.0, None, None)
    assert tokens(None, 512) == ()


def test_no_row_of_the_job_before_all_ranks_have_begun_but_a_silent_one_is_not_waited_for() -> None:
    samples = two(2)
    assert (
        taken(history(view("running", "running"), samples | {"node1": []})).whole().job.step == ()
    )
    samples = {"node1": [], "node2": two(3)["node2"]}
    assert taken(history(view("running", "running"), samples)).whole().job.step == (1.0, 2.0, 3.0)


def test_sending_is_known_where_the_link_was_measured() -> None:
    samples = two()
    samples["node1"].append(
        LinkSample(
            time_s=3.0,
            interface="eth1",
            interval_s=1.0,
            sent_bytes=900,
            received_bytes=300,
            links=measured(5000.0),
        )
    )
    series = taken(history(view("running", "running"), samples)).whole()
    assert series.ranks[0].send == (0.1,) * 4
    assert sum(
        column[0] or 0
        for one in [series.ranks[0]]
        for column in (one.compute, one.send, one.wait, one.schedule_bubble)
    ) == pytest.approx(1.0)
    assert series.ranks[1].send == ()


def measured(bytes_per_s: float, sender: str = "node1") -> tuple[LinkMeasurement, ...]:
    capacity = Capacity(bytes_per_s=bytes_per_s, source="measured")
    return measured_links(sender, ("node1", "node2"), capacity)


def link(time_s: float, sent: int, received: int) -> LinkSample:
    return LinkSample(
        time_s=time_s,
        interface="eth1",
        interval_s=1.0,
        sent_bytes=sent,
        received_bytes=received,
        links=measured(2000.0),
    )


def test_what_is_more_than_payload_and_headers_is_other_traffic() -> None:
    samples = two()
    # 500 bytes of payload a second: 520 with headers are all ours, of 1500 a third is.
    samples["node1"] += [link(t, 520, 1500) for t in (5.0, 6.0, 7.0)]
    series = taken(history(view("running", "running"), samples)).whole()
    one, other = series.links
    who = series.summary.links[0]
    assert (who.node, who.basis, who.peers) == ("node1", "interface", ("node2",))
    assert who.capacity is not None
    assert who.capacity.bytes_per_s == 2000.0
    assert one.sent == one.own_sent == (520.0,) * 3
    assert one.received == (1500.0,) * 3
    assert one.own_received == (250.0,) * 3
    assert (other.node, other.sent) == ("node2", ())


def test_bursts_are_averaged_over_two_steps() -> None:
    samples = two(10)
    samples["node1"] += [link(t, 4000 if t % 4 == 0 else 0, 0) for t in map(float, range(1, 17))]
    sent = taken(history(view("running", "running"), samples)).whole().links[0].sent
    assert sent[7:] == (1000.0,) * 9


def test_nodes_that_share_a_loopback_interface_are_told_by_their_ranks() -> None:
    places = (place("node1", 0, 0, address="127.0.0.2"), place("node2", 1, 1, address="127.0.0.3"))
    samples = two()
    samples["node1"].append(LinkSample(5.0, "lo", 1.0, 10**9, 10**9))
    series = taken(history(view("running", "running", places=places), samples)).whole()
    one, who = series.links[0], series.summary.links[0]
    assert (who.basis, who.utilization) == ("ranks", None)
    assert (one.sent, one.received) == ((500.0,) * 4, (250.0,) * 4), "a row for each step"


def test_a_single_node_has_no_link() -> None:
    places = (place("node1", 0, 0, nproc=2),)
    samples = {"node1": [*two()["node1"], link(3.0, 1, 1)]}
    assert taken(history(view("running", places=places), samples)).whole().links == ()


def joined(parts: list[JobSeries]) -> list[tuple[float | None, ...]]:
    """Every column of rank 0, put together as a page does it."""
    names = ("time_s", "step", "tokens_per_s", "wait")
    return [sum((getattr(part.ranks[0], name) for part in parts), ()) for name in names]


def test_rows_since_a_number_put_together_are_the_whole() -> None:
    job = view("running", "running")
    everything = {node: list(samples) for node, samples in two(50).items()}
    feed = HistoryBuilder()
    builder = SeriesBuilder(JOB, "s")
    parts = []
    seq = 0
    random_ = random.Random(7)
    numbers = {"node1": 0, "node2": 0}
    while any(everything.values()):
        was_whole = all(numbers.values())
        node = random_.choice([name for name, left in everything.items() if left])
        for _ in range(random_.randint(1, 5)):
            if everything[node]:
                numbers[node] += 1
                body = everything[node].pop(0)
                feed.add(
                    NodeId(f"id-of-{node}"),
                    node,
                    JournalLine(seq=numbers[node], attempt=1, body=body),
                )
        builder.extend(feed.snapshot(job, is_complete=False), 9.0)
        if builder.seq > seq:
            part = builder.since(seq) if seq else builder.whole()
            assert part.seq == builder.seq
            assert part.since == seq or (part.since == 0 and not was_whole)
            seq = part.seq
            parts = parts if part.since else []
            parts += [part] if part.ranks and part.ranks[0].rank == 0 else []
    assert joined(parts) == joined([builder.whole(10**6)])


@pytest.mark.parametrize(("rise", "first"), [(1.005, 9), (1.05, 1)])
def test_a_new_best_rate_has_all_rows_sent_again_only_where_it_moves_the_peak_visibly(
    rise: float, first: int
) -> None:
    # 1,100 FLOPs in a second of computing: more than the peak of 1,000 that was told.
    before = [start(0, neighbors=()), *steps(0, 8, flops=1100.0)]
    builder = taken(history(view("running"), {"node1": before}))
    seq = builder.seq
    more = steps(0, 9, flops=1100.0 * rise)[-1]
    builder.extend(history(view("running"), {"node1": [*before, more]}), 20.0)
    assert builder.since(seq).ranks[0].step[0] == first
    mfu = builder.summary.ranks[0].mfu
    assert mfu is not None
    assert mfu <= 1.0


def test_an_old_or_foreign_number_gets_everything() -> None:
    builder = taken(history(view("running", "running"), two()))
    assert builder.since(0).since == 0
    assert builder.since(builder.seq + 1).since == 0
    assert builder.since(builder.seq).ranks[0].step == ()


def test_a_new_attempt_has_a_numbering_of_its_own() -> None:
    builder = taken(history(view("running", "running"), two()))
    before = builder.stream
    again = view("running", "running", number=2)
    builder.extend(HistoryBuilder().snapshot(again, is_complete=False), 9.0)
    assert builder.stream != before
    assert (builder.seq, builder.whole().attempt) == (0, 2)


def test_numbers_are_of_the_last_steps() -> None:
    job = view("running", "running", started_s=10.0)
    samples = two(12)
    samples["node2"] = [start(1), *steps(1, 12, compute_s=1.6)]
    numbers = taken(history(job, samples), 40.0).summary
    assert (numbers.step, numbers.total_steps) == (12, 20)
    assert (numbers.step_s, numbers.remaining_s, numbers.elapsed_s) == (2.0, 14.0, 30.0), (
        "the next step has begun"
    )
    assert (numbers.tokens_per_s, numbers.mfu, numbers.loss) == (256.0, 0.2, 3.0)
    assert numbers.slowest_rank == 1


def test_numbers_of_a_job_that_has_written_nothing_are_not_known() -> None:
    job = view("starting", "starting")
    numbers = taken(history(job, {}), 1.0).summary
    assert (numbers.step, numbers.tokens_per_s, numbers.remaining_s) == (None, None, None)
