"""Job summary: taken from a job's rows and its view."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.job_rows import JobRows
from jupyter_mntrain.metrics.link_rows import LinkRows
from jupyter_mntrain.metrics.rank_rows import RankRows, short
from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.metrics.summary import JobSummary, LinkSummary, RankSummary, WrittenText
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import TERMINAL, JobState, JobView
from jupyter_mntrain.model.records.number import carried

NOISE = 0.03
"""A pace this much below the next one is the slowest; less is noise."""

Ranks = Mapping[Rank, RankRows]
Links = Mapping[str, LinkRows]


def summarize(
    history: JobHistory,
    *,
    now_s: float,
    ranks: Ranks,
    job: JobRows,
    links: Links,
    evaluation_loss: float | None,
    sample: WrittenText | None,
    peak_flops_per_s: float | None,
    schedule_bubble: float | None,
) -> JobSummary:
    """The summary of what ``ranks``, ``job`` and ``links`` have taken of ``history``.

    Args:
        now_s: Unix time.
        peak_flops_per_s: of all devices together.
    """
    view, table = history.view, job.table
    step = int(table.last("step") or 0)
    total = next(
        (r.start.total_steps for r in ranks.values() if r.start and r.start.total_steps), 0
    )
    step_s, flops_per_s = table.recent("step_s"), table.recent("flops_per_s")
    link_summaries = tuple(one for link in links.values() for one in _links(link, ranks))
    used = [one.utilization for one in link_summaries if one.utilization is not None]
    rates = [one.bytes_per_s for one in link_summaries if one.bytes_per_s is not None]
    mfu = None
    if job.is_whole and flops_per_s is not None and peak_flops_per_s:
        mfu = flops_per_s / peak_flops_per_s
    bubble = table.recent("bubble") if job.is_whole else None
    remaining_s = max(0, total - step) * step_s if total and step_s else None
    tokens_per_s = table.recent("tokens_per_s")
    return JobSummary(
        job_id=view.job_id,
        name=view.spec.name,
        state=view.state,
        step=step,
        total_steps=total or None,
        step_s=short(step_s),
        elapsed_s=elapsed_s(view, now_s),
        remaining_s=short(remaining_s) if view.state not in TERMINAL else None,
        tokens_per_s=short(tokens_per_s),
        mfu=short(mfu),
        bubble=short(bubble),
        schedule_bubble=short(schedule_bubble),
        loss=None if job.last_loss is None else carried(job.last_loss),
        first_loss=None if job.first_loss is None else carried(job.first_loss),
        evaluation_loss=None if evaluation_loss is None else carried(evaluation_loss),
        slowest_rank=_slowest(ranks),
        busiest_link=max(used, default=None),
        busiest_bytes_per_s=max(rates, default=None),
        not_finite=job.not_finite,
        first_not_finite_step=job.first_not_finite_step,
        missing=_missing(
            job,
            ranks,
            view,
            link_summaries,
            step_s=step_s,
            tokens_per_s=tokens_per_s,
            mfu=mfu,
            bubble=bubble,
            loss=job.last_loss,
            busiest_link=max(rates, default=None),
        ),
        ranks=_rank_summaries(view, ranks),
        links=link_summaries,
        sample=sample,
        problem=view.problem,
        stall=view.stall,
        attempt=view.attempt.number,
        attempts=view.spec.max_restarts + 1,
        restart=view.restart,
        saved_step=view.saved_step,
    )


def elapsed_s(view: JobView, now_s: float) -> float | None:
    """Seconds since the first part started, until the last one ended; ``None`` before."""
    started = [part.started_s for part in view.parts if part.started_s is not None]
    if not started:
        return None
    if view.state in TERMINAL:
        # Each part by its own node's clock: clocks of two nodes are never subtracted.
        ran = (
            part.ended_s - part.started_s
            for part in view.parts
            if part.started_s is not None and part.ended_s is not None
        )
        return max(ran, default=None)
    return max(0.0, now_s - min(started))


def _rank_summaries(view: JobView, ranks: Ranks) -> tuple[RankSummary, ...]:
    def summary(rank: Rank, node: str, state: JobState) -> RankSummary:
        known = ranks.get(rank)
        return known.summary(state) if known else RankSummary(rank=rank, node=node, state=state)

    return tuple(
        summary(status.rank, part.node, status.state)
        for part in view.parts
        for status in part.ranks
    )


def _slowest(ranks: Ranks) -> Rank | None:
    paces = sorted(
        (pace, rank)
        for rank, known in ranks.items()
        if (pace := known.table.recent("pace_tokens_per_s")) is not None
    )
    if len(paces) < 2 or paces[0][0] > (1 - NOISE) * paces[1][0]:
        return None
    return paces[0][1]


def _links(link: LinkRows, ranks: Ranks) -> tuple[LinkSummary, ...]:
    own = [known for rank, known in ranks.items() if rank in link.placement.ranks]
    spans = [span for known in own if (span := known.table.recent_span())]
    span = (min(one[0] for one in spans), max(one[1] for one in spans)) if spans else None
    neighbors = {Rank(peer) for known in own if known.start for peer in known.start.neighbors}
    nodes = {ranks[rank].node: None for rank in sorted(neighbors) if rank in ranks}
    nodes.pop(link.placement.node, None)
    series = [known.series for known in own if known.series is not None]
    return link.summary(span, series, tuple(nodes))


def _missing(
    job: JobRows,
    ranks: Ranks,
    view: JobView,
    links: tuple[LinkSummary, ...],
    **figures: float | None,
) -> dict[str, str]:
    """Why figures are not known, by their names."""
    if not len(job.table):
        return {}
    starts = [known.start for known in ranks.values()]
    writing = {rank for rank, known in ranks.items() if known.start or len(known.table)}
    everybody = (rank for part in view.attempt.placements for rank in part.ranks)
    silent = [rank for rank in everybody if rank not in writing]
    unknown = sorted({s.device for s in starts if s is not None and s.peak_flops_per_s is None})
    no_flops = "the ranks report no FLOPs: recorder.step(flops=…)"
    if unknown:
        no_flops = f"the peak of {', '.join(unknown)} is not known"
    reasons = {
        "tokens_per_s": "the ranks report no tokens: recorder.step(tokens=…)",
        "mfu": no_flops,
        "bubble": "the ranks do not report when they compute: recorder.step(compute_s=…)",
        "loss": "the ranks report no loss: recorder.step(loss=…)",
    }
    if silent:
        reasons["mfu"] = reasons["bubble"] = f"rank {', '.join(map(str, silent))} reports nothing"
    if len(job.table) <= WARM_UP_STEPS:
        warm_up = f"the first {WARM_UP_STEPS} steps are warm-up"
        reasons |= dict.fromkeys(("step_s", "tokens_per_s", "bubble"), warm_up)
        reasons |= {} if unknown else {"mfu": warm_up}
    told = {name: why for name, why in reasons.items() if figures[name] is None}
    if links and figures["busiest_link"] is None:
        told["busiest_link"] = next((one.missing for one in links if one.missing), "no sample yet")
    return told
