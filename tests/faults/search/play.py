"""Play: one case on the stage, from the fault to the verdict, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import msgspec

from tests.faults.search.case import EARLY, Case, Sequence, Statement, Truth
from tests.faults.search.grammar import MECHANISMS
from tests.faults.search.mechanisms.truths import any_silence
from tests.faults.search.openings import begin
from tests.faults.search.scoring import SCORES, Score, score
from tests.faults.search.stage import Stage
from tests.waiting import until

START_S = 30.0
"""Added where the fault is in place before a job starts: torch is imported by all ranks."""

QUIET_S = 14.0
"""Nothing is said of a harmless fault for this long: a stall is told after 10 s."""

HELD_S = 2.0
"""A right verdict stands if nothing replaces it for this long."""

SETTLED_S = 4.0
"""The verdict on a job that is over is final after this."""

BETWEEN_S = 1.0
"""Between a distraction and the fault."""

ASKED_WITHIN_S = 5.0
"""A person asks at some moment of so long a time after it must be known."""

GOES_ON_S = 90.0
"""For a job to go on once a fault is mended: TCP tries again in ever longer intervals."""


class Result(msgspec.Struct, frozen=True):
    """One line of the file of results."""

    seed: int
    stratum: str
    case: str
    is_hard: bool
    truth: str
    verdict: tuple[Statement, ...]
    state: str
    score: Score
    known_after_s: float | None
    seconds: float
    was_misled: bool = False
    """A false statement stood for a while before the last one."""
    parameters: tuple[dict[str, Any], ...] = ()
    trouble: str = ""
    """Why the case could not be played; it is then not counted."""


class Seen(msgspec.Struct):
    """What a watch saw."""

    said: tuple[Statement, ...] = ()
    state: str = ""
    score: Score = "silent"
    known_after_s: float | None = None
    was_misled: bool = False


def play(stage: Stage, case: Case) -> Result:
    """Play one case and mend the stage. Never raises for what a case does to the lab."""
    begun = time.monotonic()
    seen, trouble = None, ""
    try:
        with ExitStack() as stack:
            seen = _watched(stage, case, stack)
    except Exception as error:  # noqa: BLE001 - whatever a fault does to the lab, the next case runs
        # What cannot be fixed after the verdict costs the lab alone.
        trouble = "" if seen else f"{type(error).__name__}: {str(error)[:300]}"
        stage.spoil()
    seen = seen or Seen()
    spoils = any(MECHANISMS[name].spoils for name in case.mechanisms)
    keeps = not spoils and case.moment == "steps" and not trouble
    stage.mend(keep_job=keeps)
    return Result(
        seed=case.seed,
        stratum=case.stratum,
        case=case.title,
        is_hard=case.is_hard,
        truth=told(case),
        verdict=seen.said,
        state=seen.state,
        score=seen.score,
        known_after_s=seen.known_after_s,
        seconds=round(time.monotonic() - begun, 1),
        was_misled=seen.was_misled,
        parameters=case.parameters,
        trouble=trouble,
    )


def told(case: Case) -> str:
    """What is true, in short."""
    if case.truth.is_harmless and not case.truth.accepts:
        return "harmless"
    words = [
        f"{'/'.join(sorted(one.kinds))} on {'/'.join(sorted(one.nodes)) or 'any'}"
        + (f" rank {'/'.join(map(str, sorted(one.ranks)))}" if one.ranks else "")
        for one in case.truth.accepts
    ]
    code = f", exit code {case.truth.exit_code}" if case.truth.exit_code is not None else ""
    return " or ".join(words) + code + (" (the job goes on)" if case.truth.is_harmless else "")


def _watched(stage: Stage, case: Case, stack: ExitStack) -> Seen:
    style = style_of(case)
    is_early = case.moment in EARLY
    if is_early:
        stage.end_job()
    else:
        stage.ensure_job(case.layout, style)
        if any(MECHANISMS[name].slows for name in case.mechanisms):
            stage.await_normal()
    begin_s = time.monotonic()
    _act(stage, case, stack)
    if is_early and not stage.bench.job:
        begin_s = _start(stage, case, style)
    return _watch(stage, case, begin_s)


def _act(stage: Stage, case: Case, stack: ExitStack) -> None:
    """Make a case happen; the stack mends it."""
    for number, (name, parameters) in enumerate(zip(case.mechanisms, case.parameters, strict=True)):
        if number:
            time.sleep(BETWEEN_S)
        stack.enter_context(MECHANISMS[name].act(stage, case, parameters))


def play_sequence(stage: Stage, sequence: Sequence) -> Result:
    """Play faults that follow one another. Never raises for what they do to the lab."""
    begun_s, trouble = time.monotonic(), ""
    scores: list[Score] = []
    said: list[Statement] = []
    try:
        for found, what in _in_turn(stage, sequence):
            scores.append(found)
            said += what
    except Exception as error:  # noqa: BLE001 - whatever a fault does to the lab, the next one runs
        # What cannot be fixed after the last verdict costs the lab alone.
        is_asked = len(scores) == len(sequence.cases) + len(sequence.pauses_s)
        trouble = "" if is_asked else f"{type(error).__name__}: {str(error)[:300]}"
        stage.spoil()
    state = str(stage.job.get("state", ""))
    stage.mend(keep_job=False)
    return Result(
        seed=sequence.seed,
        stratum=sequence.cases[-1].stratum,
        case=sequence.title,
        is_hard=True,
        truth=" then ".join(told(one) for one in sequence.cases),
        verdict=tuple(said),
        state=state,
        score=max(scores, key=SCORES.index, default="silent"),
        known_after_s=None,
        seconds=round(time.monotonic() - begun_s, 1),
        parameters=(
            {"asks": scores},
            *(found for one in sequence.cases for found in one.parameters),
        ),
        trouble=trouble,
    )


def _in_turn(stage: Stage, sequence: Sequence) -> Iterator[tuple[Score, list[Statement]]]:
    """What is said of each fault, and of the job that goes on after it."""
    chance = Random(f"asks {sequence.seed}")
    first = sequence.cases[0]
    stage.end_job()
    begin(stage, sequence.opening, first.layout, style_of(first), chance)
    for number, case in enumerate(sequence.cases):
        if number:
            stage.said.clear()
            steps = stage.steps()
            until(lambda aim=steps + 2: stage.steps() >= aim, "the job to go on", GOES_ON_S)
            time.sleep(sequence.pauses_s[number - 1])
            before = sequence.cases[number - 1].truth
            well = Truth(is_harmless=True, may=(*before.may, *any_silence()))
            yield ask(well, lambda case=case: _told(stage, case), 0.0, chance)
        with ExitStack() as stack:
            _act(stage, case, stack)
            within_s = case.truth.within_s * stage.patience
            yield ask(case.truth, lambda case=case: _told(stage, case), within_s, chance)


def _told(stage: Stage, case: Case) -> Told:
    return stage.statements(case), str(stage.job.get("state", ""))


Told = tuple[list[Statement], str]
"""What is said of a job, and its state."""


def ask(
    truth: Truth, told: Callable[[], Told], within_s: float, chance: Random
) -> tuple[Score, list[Statement]]:
    """What a person is told who asks at some moment after it must be known."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and score(truth, *told()) != "right":
        time.sleep(0.2)
    time.sleep(chance.random() * ASKED_WITHIN_S)
    said, state = told()
    return score(truth, said, state), said


def style_of(case: Case) -> str:
    """How the ranks of a case exchange what they have."""
    return "reduce" if case.seed % 2 else "ring"


def given_words(case: Case) -> tuple[list[str], list[str]]:
    """Options of a case's launch, and arguments of its script."""
    words = [word for one in case.parameters for word in one.get("words", ())]
    return words, [word for one in case.parameters for word in one.get("arguments", ())]


def _start(stage: Stage, case: Case, style: str) -> float:
    """Launch the job that the fault awaits; when its time begins."""
    words, arguments = given_words(case)
    if case.moment == "restart":
        words += ["--restarts", "1"]
    if case.moment == "end":
        arguments += ["--steps", "30"]
    stage.launch(case.layout, style, words, arguments)
    if case.moment == "restart":
        stage.await_steps()
        bystander = case.layout.ranks(case.other)[0]
        stage.put(case.layout, bystander, "step", "import os; os.kill(os.getpid(), 9)")
    return time.monotonic()


def _watch(stage: Stage, case: Case, begin_s: float) -> Seen:
    """Look until the verdict stands, or the case's time is over."""
    early_s = START_S if case.moment in EARLY else 0.0
    truth = case.truth
    base_s = QUIET_S if truth.is_harmless and not truth.accepts else truth.within_s
    limit_s = (base_s + early_s) * stage.patience
    seen = Seen()
    right_s: float | None = None
    over_s: float | None = None
    while (now_s := time.monotonic() - begin_s) < limit_s:
        said = stage.statements(case)
        seen.said, seen.state = tuple(said), str(stage.job.get("state", ""))
        seen.score = score(truth, said, seen.state)
        seen.was_misled |= seen.score in ("wrong", "false alarm") and bool(said)
        right_s = (right_s or now_s) if seen.score == "right" else None
        over_s = (over_s or now_s) if stage.is_over or not stage.bench.job else None
        is_quiet_watch = truth.is_harmless and not truth.accepts
        if right_s is not None and now_s - right_s >= HELD_S and not is_quiet_watch:
            break
        if over_s is not None and now_s - over_s >= SETTLED_S:
            break
        time.sleep(0.2)
    if truth.accepts and right_s is not None:
        seen.known_after_s = round(right_s, 1)
    return seen
