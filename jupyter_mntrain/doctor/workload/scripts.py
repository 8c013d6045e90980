"""Checks of a job's script by its source: whether it can run on its nodes as it is launched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath, PurePosixPath
from typing import Final

from jupyter_mntrain.doctor.check import (
    Case,
    Check,
    CheckedNode,
    Finding,
    Level,
    PendingJob,
    Unsent,
)
from jupyter_mntrain.doctor.script.needs import Need, ScriptNeeds
from jupyter_mntrain.doctor.workload.contents import THERE
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import PathKind
from jupyter_mntrain.model.sources.launchers import counterpart, without_launchers
from jupyter_mntrain.model.text.foreign import shown_line

_OF_OLD_LAUNCHER: Final = re.compile(r"required: .*--local[_-]rank\b")
LOCAL_RANK_FIX: Final = (
    'give that argument default=int(os.environ["LOCAL_RANK"]) in the script, and no required=: '
    "torchrun tells each rank its own by that variable, where torch.distributed.launch gave an "
    "argument"
)


class ScriptText(Check):
    """A check of the whole job, which is reported at its head."""

    id = "script"
    title = "Script"
    looks_at = (
        "whether a job's script is Python, its own argparse takes its arguments, what lies "
        "next to it hides no module of Python or torch, and it tells Lightning the launch's nodes"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        job = case.job
        head = case.named(job.head) if job else None
        if job is None or job.script is None or head is None:
            return
        if job.script.error:
            yield self._no_python(head, job, job.script)
        elif job.script.arguments:
            is_rank = _OF_OLD_LAUNCHER.search(job.script.arguments)
            yield self.stops(
                head,
                "its arguments",
                Kind.BAD_COMMAND,
                cause=f"{_name(job)} does not take its arguments: "
                f"{shown_line(job.script.arguments)}",
                fix=LOCAL_RANK_FIX
                if is_rank
                else "correct what stands after --; the script's own --help lists its options",
            )
        elif job.hides:
            hides = ", ".join(map(shown_line, job.hides))
            name = job.hides[0].removesuffix(".py")
            yield self.slows(
                head,
                f"hides {name}",
                Kind.NO_MODULE,
                cause=f"next to {_name(job)} lies {hides}: whoever imports {name}, torch too, gets "
                "that in place of the module of Python or torch",
                fix=f"rename {shown_line(job.hides[0])}",
            )
        elif job.script.nodes and job.nodes not in {0, *(one.number for one in job.script.nodes)}:
            told = job.script.nodes[0]
            yield self.slows(
                head,
                f"num_nodes={told.number}",
                Kind.RANKS_NEVER_MET,
                cause=f"{_name(job)} tells Lightning num_nodes={told.number} in line {told.line}, "
                f"{shown_line(told.name)}, and the job has {job.nodes} nodes: it ends there, or "
                "each rank trains alone",
                fix=f"give {shown_line(told.name)} num_nodes={job.nodes}, or "
                'int(os.environ["NNODES"]), which a launch sets',
            )
        else:
            yield self.passed(head, "reads well")

    def _no_python(self, head: CheckedNode, job: PendingJob, script: ScriptNeeds) -> Finding:
        problem = Problem(
            kind=Kind.EXCEPTION,
            cause=f"{_name(job)}, line {script.line}: {shown_line(script.error)}; read as Python "
            f"{script.python}",
            fix="correct that line",
        )
        # A newer Python may know more.
        is_newer = _minor(head.info.inventory.versions.python) > _minor(script.python)
        return self.found("slows" if is_newer else "stops", head, f"line {script.line}", problem)


class LaunchItself(Check):
    """Check for what a launch would refuse in any state of the nodes."""

    id = "launch"
    title = "Launch"
    looks_at = "whether a job's options, and its nodes' versions and networks, fit each other"

    def findings(self, case: Case) -> Iterable[Finding]:
        if case.job is None or not case.nodes:
            return
        problem = case.refused
        names = (case.job.head, problem.node if problem and problem.node else "")
        at = next(filter(None, (case.named(name) for name in reversed(names))), case.nodes[0])
        if problem is None:
            yield self.passed(at, "accepted")
        else:
            yield self.found("stops", at, "refused", problem)


class ScriptVariables(Check):
    id = "script-variables"
    title = "Script's variables"
    looks_at = "whether the environment has the variables that a job's script takes from it"

    def findings(self, case: Case) -> Iterable[Finding]:
        script = case.job.script if case.job else None
        if case.job is None or script is None or not (script.variables or case.job.set_here):
            return
        for node in case.nodes:
            unset = {*node.facts.unset} if node.facts else set[str]()
            lost = [
                one
                for one in script.variables
                if one.what in unset or not without_launchers({one.what: ""})
            ]
            foreign = [one for one in lost if counterpart(one.what)]
            if certain := [one for one in foreign if one.is_certain]:
                yield self._of_other_launcher(node, case.job, certain[0])
                continue
            if node.facts is None:
                continue
            lost = [one for one in lost if one not in foreign]
            here = [one for one in script.asks if one.what in case.job.set_here & unset]
            if not lost and here:
                yield self._set_here(node, case.job, here)
                continue
            if not lost:
                yield self.passed(node, "set")
                continue
            first, names = lost[0], ", ".join(one.what for one in lost)
            given = " ".join(f"--env {one.what}" for one in lost if one.what in case.job.set_here)
            problem = Problem(
                kind=Kind.EXCEPTION,
                cause=f"{_name(case.job)} takes {names} from its environment, in line "
                f"{first.line}, and ranks there do not have {'it' if len(lost) == 1 else 'them'}",
                fix=f"give the value that is set here: {given}"
                if given
                else f"give it with the launch: --env {first.what}=VALUE",
            )
            yield self.found(_level(lost), node, names, problem)

    def _set_here(self, node: CheckedNode, job: PendingJob, here: Sequence[Need]) -> Finding:
        """Return a warning that variables set here are not sent, and may make a difference."""
        names = ", ".join(one.what for one in here)
        are, them = ("they are", "them") if len(here) > 1 else ("it is", "it")
        problem = Problem(
            kind=Kind.EXCEPTION,
            cause=f"{_name(job)} asks for {names}, in line {here[0].line}: {are} set here, and "
            f"ranks there do not have {them}",
            fix=f"give it: {' '.join(f'--env {one.what}' for one in here)}",
        )
        return self.found("slows", node, names, problem)

    def _of_other_launcher(self, node: CheckedNode, job: PendingJob, need: Need) -> Finding:
        """Return the problem of a variable that another launcher sets, different for each rank."""
        own = counterpart(need.what)
        problem = Problem(
            kind=Kind.EXCEPTION,
            cause=f"{_name(job)} takes {need.what} from its environment, in line {need.line}: "
            "another launcher sets it, not torchrun",
            fix=f'have the script take {own}: os.environ["{own}"]',
        )
        return self.found("stops", node, need.what, problem)


class ScriptGpus(Check):
    """Check that nodes have the GPUs that a script uses on every rank without asking for them."""

    id = "script-gpus"
    title = "Script's GPUs"
    looks_at = "whether there is a GPU where a job's script uses one in any case"

    def findings(self, case: Case) -> Iterable[Finding]:
        script = case.job.script if case.job else None
        if case.job is None or script is None or not script.gpus:
            return
        first = min(script.gpus, key=lambda one: not one.is_certain)
        for node in case.nodes:
            if node.uses_gpus or "rocm" in (node.info.inventory.versions.torch or ""):
                yield self.passed(node, "there")
                continue
            problem = Problem(
                kind=Kind.NO_CUDA,
                cause=f"{_name(case.job)} {'needs a GPU' if first.is_certain else 'may end'} in "
                f"line {first.line}, {shown_line(first.what)}, and there is no GPU for it",
                fix="launch it on nodes with GPUs, or have the script use the CPU where "
                "torch.cuda.is_available() says no",
            )
            yield self.found(_level([first]), node, "no GPU", problem)


class ScriptFiles(Check):
    """Check of files that the script reads.

    A relative path must be sent or exist in the folder that it runs in on the nodes; any other
    path is one on the nodes.
    """

    id = "script-files"
    title = "Script's files"
    looks_at = (
        "whether the files that a job's script opens by a path in its text are there, and those "
        "that its arguments name, here or in the folder of --workdir"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        job, script = case.job, case.job.script if case.job else None
        if job is None:
            return
        script = script or ScriptNeeds()
        if not (script.reads or job.given or job.unsent_arguments):
            return
        for node in case.nodes:
            found = _kinds(node)
            kinds = {
                one.what: found.get(job.placed.get(one.what, one.what)) for one in script.reads
            }
            lost = [one for one in script.reads if kinds[one.what] in ("missing", "unreadable")]
            unsent = [one for one in script.reads if one.what in job.unsent]
            if unsent:
                yield self._unsent(node, job, unsent)
            elif lost:
                alike = [one for one in lost if kinds[one.what] == kinds[lost[0].what]]
                yield self._lost(node, job, alike, is_there=kinds[lost[0].what] != "missing")
            elif job.unsent_arguments:
                yield self._unsent_arguments(node, job)
            elif (lack := _lacks_given(case, node, job)) is not None:
                yield self._not_given(node, job, *lack)
            elif node.facts is not None:
                yield self.passed(node, "there")

    def _unsent(self, node: CheckedNode, job: PendingJob, unsent: Sequence[Need]) -> Finding:
        first = next((one for one in unsent if job.unsent[one.what].how), unsent[0])
        lack = job.unsent[first.what]
        alike = [first]
        if not lack.part:
            alike = [one for one in unsent if _is_alike(job.unsent[one.what], lack)]
        paths, are, it = _listed(one.what for one in alike), _are(alike), _it(alike)
        here = f"{are} here, but {are} not sent" if lack.how else f"{are} not sent with the job"
        if lack.part:
            here = f"is here, but {shown_line(lack.part)} is not sent"
        within = [f"--file {shown_line(one.what)}" for one in alike if not _is_above(one.what)]
        if within:
            how = f"{' '.join(within)}, or --project for {_its(alike)} whole folder"
        else:
            how = f"--project with a folder that has the script and {it}"
        has = "it has" if len(alike) == 1 else "they have"
        fix = f"send {it}: {how}; or give the absolute path that {has} on the nodes"
        if lack.how:
            fix = f"send {it}: {_options(job.unsent[one.what].how for one in alike)}"
        if PurePosixPath(first.what).name == ".env":
            fix = f"give what ranks need of it: --env NAME, or NAME=VALUE; or {fix}"
        reads = "reads" if first.is_certain else "may read"
        problem = Problem(
            kind=Kind.NO_FILE,
            cause=f"{_name(job)} {reads} {paths} in {_lines(alike)}, which {here}",
            fix=fix,
        )
        # It may make it itself, or change to another folder.
        return self.found("slows", node, shown_line(first.what), problem)

    def _unsent_arguments(self, node: CheckedNode, job: PendingJob) -> Finding:
        given = job.unsent_arguments
        argument, are, it, has = "an argument", "is", "it", "path that it has"
        if len(given) > 1:
            argument, are, it, has = "arguments", "are", "them", "paths that they have"
        paths = _listed(given)
        problem = Problem(
            kind=Kind.NO_FILE,
            cause=f"{paths}, which {_name(job)} is given as {argument}, {are} here, but {are} not "
            "sent",
            fix=f"send {it}: {_options(given.values())}; or give the absolute {has} on the nodes",
        )
        # They may be no paths, or what the script makes.
        return self.found("slows", node, paths, problem)

    def _lost(
        self, node: CheckedNode, job: PendingJob, lost: Sequence[Need], *, is_there: bool
    ) -> Finding:
        places = [job.placed.get(one.what, one.what) for one in lost]
        paths, it = _listed(places), _it(lost)
        user = node.facts.user if node.facts else "its user"
        lacks = "does not exist there" if len(lost) == 1 else "do not exist there"
        what = f"{user} may not read" if is_there else lacks
        problem = Problem(
            kind=Kind.NO_PERMISSION if is_there else Kind.NO_FILE,
            cause=f"{_name(job)} reads {paths} in {_lines(lost)}, which {what}",
            fix=f"on {node.name}: sudo setfacl -R -m u:{user}:rX "
            + " ".join(map(shown_line, places))
            if is_there
            else f"copy {it} to {node.name}, or mount {it} there, or correct "
            f"the path{'s' * (len(lost) > 1)}",
        )
        return self.found(_level(lost), node, shown_line(places[0]), problem)

    def _not_given(self, node: CheckedNode, job: PendingJob, given: str, has: str) -> Finding:
        path = shown_line(job.given[given])
        problem = Problem(
            kind=Kind.NO_FILE,
            cause=f"{_name(job)} is given {shown_line(given)}, and {path} does not exist there, "
            f"but on {has}",
            fix=f"copy it to {node.name}, or mount it there; if only {has} is to read it, go on",
        )
        return self.found("slows", node, shown_line(given), problem)


def _is_alike(one: Unsent, other: Unsent) -> bool:
    """Whether one sentence can describe both."""
    return not one.part and bool(one.how) == bool(other.how)


def _is_above(path: str) -> bool:
    """Whether a path is above the job's folder, so that a file cannot be sent to it."""
    return os.path.normpath(path).startswith("..")


def _options(hows: Iterable[str]) -> str:
    found = list(dict.fromkeys(map(shown_line, hows)))
    return (" " if all(one.startswith("--") for one in found) else ", ").join(found)


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(map(shown_line, paths))


def _lines(needs: Sequence[Need]) -> str:
    lines = sorted({one.line for one in needs})
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"


def _are(needs: Sequence[Need]) -> str:
    return "is" if len(needs) == 1 else "are"


def _it(needs: Sequence[Need]) -> str:
    return "it" if len(needs) == 1 else "them"


def _its(needs: Sequence[Need]) -> str:
    return "its" if len(needs) == 1 else "their"


def _kinds(node: CheckedNode) -> dict[str, PathKind]:
    return {one.asked: one.kind for one in node.facts.paths} if node.facts else {}


def _lacks_given(case: Case, node: CheckedNode, job: PendingJob) -> tuple[str, str] | None:
    """Return an argument that names a file which another node has, and that node.

    A file that no node has may be made by the script.
    """
    own = _kinds(node)
    for given, path in job.given.items():
        has = next((one for one in case.nodes if _kinds(one).get(path) in THERE), None)
        if has is not None and own.get(path) == "missing":
            return given, has.name
    return None


def _level(needs: Sequence[Need]) -> Level:
    return "stops" if any(one.is_certain for one in needs) else "slows"


def _name(job: PendingJob) -> str:
    return shown_line(PurePath(job.name).name) or "the script"


def _minor(version: str | None) -> tuple[int, ...]:
    return tuple(int(one) for one in (version or "").split(".")[:2] if one.isdigit())
