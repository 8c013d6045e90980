"""Spans of a predicted step, as they are recorded of a real one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import LinkSpeed, StepSpan, StepSpans
from jupyter_mntrain.plan.prediction.simulated import Pair, Simulated


def predicted_spans(
    walked: Simulated,
    links: Mapping[Pair, LinkSpeed],
    *,
    passes: int = 1,
    microbatches: int = 0,
    update_s: float = 0.0,
) -> StepSpans:
    """The spans of a simulated step.

    Args:
        links: between nodes: messages within a node take no time and are left out.
        passes: over the schedule, one after another.
        microbatches: of each pass, whose numbers go on in the next one.
        update_s: seconds of the optimizer, after the last pass.
    """
    ranks = range(len(walked.computing))
    computed = passes * walked.seconds
    end = computed + update_s
    found: list[tuple[StepSpan, ...]] = []
    for rank in ranks:
        once = sorted([*_computing(walked, rank), *_messages(walked, links, rank)], key=_begin)
        spans = [
            msgspec.structs.replace(
                span,
                begin_s=span.begin_s + number * walked.seconds,
                end_s=span.end_s + number * walked.seconds,
                microbatch=(span.microbatch or 0) + number * microbatches,
            )
            for number in range(passes)
            for span in once
        ]
        spans += list(_waits(spans, computed))
        if update_s > 0:
            spans.append(StepSpan(kind="update", begin_s=computed, end_s=end))
        found.append(tuple(sorted(spans, key=_begin)))
    return StepSpans(seconds=end, ranks=tuple(found))


def _begin(span: StepSpan) -> float:
    return span.begin_s


def _computing(walked: Simulated, rank: int) -> Iterator[StepSpan]:
    for action, begin, end in walked.computing[rank]:
        yield StepSpan(
            kind=action.kind,  # type: ignore[arg-type]  # it computes
            begin_s=begin,
            end_s=end,
            stage=action.stage,
            microbatch=action.microbatch,
        )


def _messages(walked: Simulated, links: Mapping[Pair, LinkSpeed], rank: int) -> Iterator[StepSpan]:
    """What a rank sends, and what it receives a latency later."""
    for (sender, receiver), spans in walked.messages.items():
        link = links.get((sender, receiver))
        if link is None or rank not in (sender, receiver):
            continue
        is_sender = rank == sender
        late = 0.0 if is_sender else link.latency_s
        for action, begin, end in spans:
            yield StepSpan(
                kind="send" if is_sender else "receive",
                begin_s=begin + late,
                end_s=end + late,
                stage=action.stage,
                microbatch=action.microbatch,
                peer=Rank(receiver if is_sender else sender),
            )


def _waits(spans: list[StepSpan], end: float) -> Iterator[StepSpan]:
    """The gaps in what a rank computes."""
    last = 0.0
    for span in spans:
        if span.kind in ("send", "receive"):
            continue
        if span.begin_s > last:
            yield StepSpan(kind="wait", begin_s=last, end_s=span.begin_s)
        last = span.end_s
    if end > last:
        yield StepSpan(kind="wait", begin_s=last, end_s=end)
