"""A job in words: one mark and one word per state, one headline, one cause line."""

from __future__ import annotations

from jupyter_mntrain.cluster import JobSummary
from jupyter_mntrain.model.job import JobState
from jupyter_mntrain.show import formats

STATE_MARKS: dict[JobState, str] = {
    "pending": "○",
    "starting": "◔",
    "running": "▶",
    "stopping": "◔",
    "succeeded": "✓",
    "failed": "✕",
    "cancelled": "■",
    "unknown": "?",
}
NODE_MARKS = {"up": "●", "suspect": "△", "lost": "⊠", "connecting": "◌"}
DIRECTION_MARKS = {"sent": "→", "received": "←"}


def title(summary: JobSummary) -> str:
    return f"{STATE_MARKS[summary.state]} {summary.state}   {summary.name}  {summary.job_id}"


def progress(summary: JobSummary) -> str:
    steps = f"step {formats.whole(summary.steps)}"
    if summary.total_steps:
        steps += f" of {formats.whole(summary.total_steps)}"
    return f"{steps}   elapsed {formats.duration(summary.elapsed_s)}"


def numbers(summary: JobSummary) -> str:
    words = [
        formats.whole(summary.tokens_per_s, "tok/s"),
        f"MFU {formats.percent(summary.mfu)}",
        f"idle {formats.percent(summary.bubble)}",
    ]
    if summary.links:
        known = [link.utilisation for link in summary.links if link.utilisation is not None]
        rates = [link.bytes_per_s for link in summary.links if link.bytes_per_s is not None]
        if known:
            words.append(f"busiest link {formats.percent(max(known))}")
        elif rates:
            words.append(f"busiest link {formats.bit_rate(max(rates))}")
    words.append(f"loss {formats.loss(summary.first_loss)} → {formats.loss(summary.last_loss)}")
    return "   ".join(words)


def cause(summary: JobSummary) -> str | None:
    """``node2: rank 1: killed by SIGKILL …``: what a person reads first."""
    if summary.cause is None:
        return None
    return cause_line(summary.cause_node, summary.cause.summary)


def cause_line(node: str | None, text: str) -> str:
    return f"{node}: {text}" if node else text


def waiting(summary: JobSummary) -> str:
    """What a job without data yet is waiting for."""
    by_state: dict[str, list[str]] = {}
    for rank in summary.ranks:
        by_state.setdefault(rank.state, []).append(f"rank {rank.rank} on {rank.node}")
    return "; ".join(f"{', '.join(ranks)}: {state}" for state, ranks in by_state.items())


def as_text(summary: JobSummary) -> str:
    """The whole job in a few lines, for a frontend that shows no pictures."""
    lines = [cause(summary), title(summary), f"{progress(summary)}   {numbers(summary)}"]
    return "\n".join(line for line in lines if line)
