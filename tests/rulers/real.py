"""Real jobs: a user's script on two real agents, held against the account that it keeps itself."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.console import Console

from jupyter_mntrain.cluster import Cluster, Job, JobSummary
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.show.tables.job import status_view
from tests.rulers.reading import of_text
from tests.rulers.table import Row
from tests.rulers.truth import MINUTE_S, WARM_UP

SCRIPT = Path(__file__).with_name("uneven.py")
KINDS = {"lengths": 40, "tokens": 60, "pauses": 40, "ranks": 60, "restart": 60}


class Step:
    """A line of a rank's account."""

    def __init__(self, attempt: int, line: str) -> None:
        number, begun, ended, tokens = line.split()
        self.attempt, self.number = attempt, int(number)
        self.begun_s, self.ended_s, self.tokens = float(begun), float(ended), int(tokens)


def launch(cluster: Cluster, kind: str, ledger: Path) -> Job:
    environment = {"KIND": kind, "STEPS": str(KINDS[kind]), "LEDGER": str(ledger)}
    spec = JobSpec(
        entry=("uneven.py",),
        files={"uneven.py": SCRIPT.read_text(encoding="utf-8")},
        participants=cluster.participants(["node1:1", "node2:1"]),
        environment=environment,
        max_restarts=1 if kind == "restart" else 0,
        name=kind,
    )
    return cluster.launch(spec)


def account(ledger: Path) -> list[list[Step]]:
    """Of each step of each attempt, what its ranks wrote."""
    found: dict[tuple[int, int], list[Step]] = {}
    for path in sorted(ledger.parent.glob(f"{ledger.name}.*")):
        attempt = int(path.name.split(".")[-2])
        for line in path.read_text().splitlines():
            if len(line.split()) == 4:
                step = Step(attempt, line)
                found.setdefault((attempt, step.number), []).append(step)
    return [found[key] for key in sorted(found)]


def rows(kind: str, share: float, summary: JobSummary, told: list[list[Step]]) -> Iterator[Row]:
    """Figures of a job as it was when ``summary`` was read."""
    newest = summary.attempt
    done = [
        one
        for one in told
        if one[0].attempt < newest or (len(one) == 2 and one[0].number <= (summary.step or 0))
    ]
    if not done or done[-1][0].attempt != newest:
        return
    ended = [max(one.ended_s for one in each) for each in done]
    begins = {each[0].attempt: each[0].number for each in reversed(done)}
    kept = [
        each
        for each in done
        if all(later <= each[0].attempt or at > each[0].number for later, at in begins.items())
    ]
    tokens = sum(one.tokens for each in kept for one in each)
    begun_s = min(one.begun_s for one in done[0])
    whole, steps = tokens / (ended[-1] - begun_s), done
    true: dict[str, float] = {"tokens": tokens, "tok/s, whole job": whole, "parts, sum": 1.0}
    true["lost steps"] = len(done) - len(kept)
    if summary.state in {"succeeded", "failed"}:
        true["tok/s"] = whole
        steps = kept
    else:
        first = next(place for place, each in enumerate(done) if each[0].attempt == newest)
        first += WARM_UP
        while first < len(done) - 1 and ended[first] <= ended[-1] - MINUTE_S:
            first += 1
        steps = done[first:]
        if not steps:
            return
        made = sum(one.tokens for each in steps for one in each)
        true["tok/s"] = made / (ended[-1] - ended[first - 1])
    window = summary.window
    shown = {
        "tok/s": summary.tokens_per_s,
        "tok/s, whole job": summary.whole and summary.whole.tokens_per_s,
        "tokens": summary.whole and summary.whole.tokens,
        "lost steps": float(summary.lost_steps),
        "parts, sum": window and sum(window.parts_s.values()) / window.seconds,
    }
    if kind in {"lengths", "tokens", "ranks"}:  # else something stands between the steps
        places = [done.index(each) for each in steps]
        spans = [ended[at] - (ended[at - 1] if at else begun_s) for at in places]
        true["step time"] = median(spans)
        shown["step time"] = summary.step_s
    for figure, value in shown.items():
        yield Row(kind, share, figure, "--json", value, true[figure])
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(status_view(summary))
    for figure, value in of_text(console.export_text()).items():
        if figure in true:
            yield Row(kind, share, figure, "status", value, true[figure])
