"""Truth: what a person finds who counts for himself, by code that nothing else uses."""

from __future__ import annotations

from math import isfinite
from statistics import mean, median

from tests.rulers.plays import BEGIN_S, RANKS, Done, Played

MINUTE_S = 60.0
WARM_UP = 2
STALL_S = 10.0
HEARD_S = 4.0
"""Clocks and links are known after some samples."""


def kept(played: Played) -> list[Done]:
    """Every step once: those of an attempt before the first one of any later attempt."""
    begins: dict[int, int] = {}
    for one in played.done:
        begins.setdefault(one.attempt, one.step)
    return [
        one
        for one in played.done
        if all(later <= one.attempt or begin > one.step for later, begin in begins.items())
    ]


def truth(played: Played, *, is_over: bool) -> dict[str, float | None]:
    """Figures by name; ``None`` = nobody can know it; what is missing is not judged."""
    steps = kept(played)
    begun_s, ended_s = played.done[0].begun_s, played.done[-1].ended_s
    each = 1 if played.play.stages[0] == played.play.stages[1] else RANKS
    tokens = sum(one.tokens for one in steps) / each
    newest = [one for one in played.done if one.attempt == played.done[-1].attempt][WARM_UP:]
    recent = [one for one in newest if one.ended_s > ended_s - MINUTE_S] or newest[-1:]
    found: dict[str, float | None] = {
        "lost steps": float(len(played.done) - len(steps)),
        "parts, sum": 1.0,
        "step": float(steps[-1].step),
    }
    if ended_s - BEGIN_S > HEARD_S:
        link = played.play.link
        found["elapsed"] = ended_s - BEGIN_S
        found["busiest link"] = min(1.0, link.carries / link.capacity)
    is_known = isfinite(tokens)
    whole = tokens / (ended_s - begun_s)
    found["loss"] = mean(played.play.turn(steps[-1].step).loss)
    found["tokens"] = tokens if is_known else None
    is_known = is_known and tokens > 0
    found["tok/s, whole job"] = whole if is_known else None
    if is_over:
        found["tok/s"] = found["tok/s, whole job"]
        found["step time"] = median(one.ended_s - one.begun_s for one in steps)
        window = played.done
        seconds = ended_s - begun_s
        if len(played.play.attempts) == 1 and not played.slept_s:
            found |= {f"tok/s, rank {rank}": found["tok/s"] for rank in (0, 1)}
    elif recent:
        before = played.done[played.done.index(recent[0]) - 1]
        seconds = ended_s - before.ended_s
        rate = sum(one.tokens for one in recent) / each / seconds
        found["tok/s"] = rate if isfinite(rate) and rate > 0 else None
        found |= {f"tok/s, rank {rank}": found["tok/s"] for rank in (0, 1)}
        if played.slept_s:  # its own clock stood
            del found["tok/s, rank 1"]
        if any(any(played.play.turn(one.step).early_s) for one in recent):  # by their own times
            del found["tok/s, rank 0"], found["tok/s, rank 1"]
        found["step time"] = median(one.ended_s - one.begun_s for one in recent)
        window = recent
    else:
        return {}
    for what in ("evaluation", "saving"):
        found[what] = sum(one.paused.get(what, 0.0) for one in window)
    usual_s = median(one.ended_s - one.begun_s for one in played.done)
    took = [one.ended_s - one.begun_s for one in window]
    found["stall"] = sum(one for one in took if one > max(STALL_S, 3 * usual_s))
    return found


def time_left(played: Played) -> float:
    """Until the job's last step and what follows it, as the play will go on."""
    play, step = played.play, played.done[-1].step
    left = 0.0
    for number in range(step, play.total + 1):
        turn = play.turn(number)
        left += turn.evaluation_s + turn.saving_s
        if number > step:
            left += turn.seconds
    return left
