"""Verdicts: what the observations of an acceptance run prove, criterion by criterion. Pure.

A criterion is passed only by a figure. What was not tried, or cannot be told on these machines, is
not judged, with why.
"""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.metrics.acceptance.acceptance_report import Criterion, Observed
from jupyter_mntrain.metrics.acceptance.figures_verdicts import bandwidth, scaling, transport
from jupyter_mntrain.metrics.acceptance.question import Question
from jupyter_mntrain.metrics.acceptance.words import seconds


def judge(observed: Observed) -> tuple[Criterion, ...]:
    """Return the verdict on every criterion, in the order of the report."""
    return (
        _commands(observed),
        _gang_start(observed),
        _contention(observed),
        *scaling(observed),
        bandwidth(observed),
        transport(observed),
        *_faults(observed),
        _resume(observed),
        _cleanup(observed),
    )


def _commands(observed: Observed) -> Criterion:
    asked = Question(
        "documented-path",
        "the documented commands launch a job",
        "each command of docs/by_hand.md that follows joining was run as it stands",
    )
    if not observed.commands:
        return asked.unreached(observed, "commands")
    bad = next((one for one in observed.commands if one.exit_code), None)
    took_s = sum(one.took_s for one in observed.commands)
    right = sum(one.exit_code == 0 for one in observed.commands)
    why = f"{bad.command!r} ended with exit code {bad.exit_code}: {bad.said}" if bad else ""
    figure = f"{right} of {len(observed.commands)} commands, {seconds(took_s)}"
    return asked.judged(bad is None, figure=figure, why=why)


def _gang_start(observed: Observed) -> Criterion:
    asked = Question(
        "gang-start",
        "all ranks of all nodes start, or none",
        "a training job was launched on all nodes",
    )
    gang = observed.gang
    if gang is None:
        return asked.unreached(observed, "gang")
    if gang.problem is not None and gang.first_step_s is None:
        return asked.failed(gang.problem)
    is_right = gang.first_step_s is not None and gang.ranks == gang.wanted
    figure = f"{gang.ranks} of {gang.wanted} ranks"
    if gang.first_step_s is not None:
        figure += f", first step after {seconds(gang.first_step_s)}"
    why = "" if is_right else "not every rank made a step"
    return asked.judged(is_right, figure=figure, value=gang.first_step_s, why=why)


def _contention(observed: Observed) -> Criterion:
    asked = Question(
        "gang-contention",
        "a job gets all that it needs, or waits",
        "a second job needed the nodes of the first: launched, it had to be refused; queued, it "
        "had to wait without holding anything, then start by itself",
    )
    gang = observed.gang
    if gang is None:
        return asked.unreached(observed, "gang")
    if gang.problem is not None:
        return asked.failed(gang.problem)
    wrong = []
    if gang.refused is None:
        wrong.append("it was not refused")
    if gang.held:
        wrong.append("it held part of what it needs")
    if not gang.waited:
        wrong.append("it did not wait for the first job to end")
    if gang.started_after_s is None:
        wrong.append("it never started")
    after = gang.started_after_s
    figure = f"leases held while it waited: {gang.held}"
    if after is not None:
        figure += f"; started {seconds(after)} after the other's end"
    why = "; ".join(wrong)
    return asked.judged(not wrong, figure=figure, value=after, why=why)


_FAULTS = {
    "rank-killed": (
        "a killed rank is identified, and the run continues",
        "the agent of its node sent SIGKILL to the last rank; the job had one restart",
    ),
    "rank-frozen": (
        "a hanging rank is identified, and the run continues",
        "the last rank of a script stopped itself with SIGSTOP; the job restarts when it stalls",
    ),
    "torchrun-killed": (
        "a node that loses its torchrun is identified, and the run continues",
        "the last rank of a script sent SIGKILL to its own torchrun",
    ),
}

_UNSAFE = {
    "node-lost": (
        "a lost node is identified, and the run continues",
        "only a power cut shows it, and that is not done to machines that may be in use",
        "launch a job with --restarts 1 --min-nodes N-1, and pull a node's power",
    ),
    "link-down": (
        "a link that goes down is identified",
        "taking an interface down needs root, and cuts off whoever else uses it",
        "launch a job with --restarts 1 --on-stall abort, and pull a cable",
    ),
}


def _faults(observed: Observed) -> Iterator[Criterion]:
    found = {one.kind: one for one in observed.faults}
    for kind, (title, how) in _FAULTS.items():
        asked = Question(kind, title, how)
        fault = found.get(kind)  # type: ignore[call-overload]
        if fault is None:
            yield asked.unreached(observed, "failures")
            continue
        if fault.problem is not None:
            yield asked.failed(fault.problem)
            continue
        is_named = fault.said is not None and fault.said.node == fault.node
        wrong = []
        if fault.detect_s is None or fault.said is None:
            wrong.append("it was not reported")
        elif not is_named:
            wrong.append(f"it was on {fault.node}, but this was reported: {fault.said.headline}")
        if fault.recover_s is None:
            wrong.append("the job made no new steps")
        figure = (
            f"detected after {seconds(fault.detect_s)}, recovered after {seconds(fault.recover_s)}"
        )
        why = "; ".join(wrong) or (fault.said.headline if fault.said else "")
        yield asked.judged(not wrong, figure=figure, value=fault.detect_s, why=why)
    for kind, (title, why, how) in _UNSAFE.items():
        yield Question(kind, title, how).unjudged(why)


def _resume(observed: Observed) -> Criterion:
    asked = Question(
        "resume-exact",
        "a killed run resumes by itself, with the same losses",
        "the losses after the checkpoint compared with those of the same run, unbroken",
    )
    found = observed.resumption
    if found is None:
        return asked.unreached(observed, "resume")
    if found.problem is not None:
        return asked.failed(found.problem)
    wrong = []
    if found.saved_step is None:
        wrong.append("it did not resume from a checkpoint")
    if found.missing:
        wrong.append(f"{found.missing} of {found.shards} shards of the checkpoint are missing")
    if not found.compared:
        wrong.append("no step of both runs has a loss")
    if found.different:
        largest = f"by up to {found.largest_difference:.3g}"
        wrong.append(f"the losses differ from step {found.different[0]} on, {largest}")
    equal = found.compared - len(found.different)
    figure = f"{equal} of {found.compared} losses equal after step {found.saved_step}"
    if found.different_norms:
        figure += f", gradient norms differ from step {found.different_norms[0]} on"
    value = found.largest_difference
    return asked.judged(not wrong, figure=figure, value=value, limit=0.0, why="; ".join(wrong))


def _cleanup(observed: Observed) -> Criterion:
    asked = Question(
        "cleanup",
        "nothing is left running on any node",
        "after all jobs had ended and been deleted, a job looked on every node for processes that "
        "carry their ids",
    )
    found = observed.leftovers
    if found is None:
        return asked.unreached(observed, "cleanup")
    if found.problem is not None:
        return asked.failed(found.problem)
    wrong = [f"{one.name} (pid {one.pid}) on {one.node}" for one in found.processes]
    if found.leases:
        wrong.append(f"{found.leases} leases")
    wrong += [f"job {one}" for one in found.kept]
    missed = [one.name for one in observed.nodes if one.name not in found.looked_on]
    wrong += [f"{one} was not looked at" for one in missed]
    figure = f"nodes: {len(found.looked_on)}; left processes: {len(found.processes)}, "
    figure += f"leases: {found.leases}"
    kept = "jobs and checkpoints stay, as asked for" if observed.keeps else ""
    why = "; ".join(wrong) or kept
    value = float(len(found.processes) + found.leases)
    return asked.judged(not wrong, figure=figure, value=value, limit=0.0, why=why)
