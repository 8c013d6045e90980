"""Table of verbs, shared by the magic and the command line.

A verb is imported when it is first asked for: a command needs one of them, ``--help`` and
completion none. All of them, with what they import, took 0.3 s of each command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.verb import Verb


class ListedVerb(NamedTuple):
    """The entry of a verb, before its module is imported.

    Args:
        module: below ``jupyter_mntrain.verbs``.
        kind: name of its class there.
        help: one line, without a full stop.
    """

    module: str
    kind: str
    help: str


HEADINGS: Final[Mapping[str, Mapping[str, ListedVerb]]] = {
    "Start here": {
        "invite": ListedVerb(
            "membership.invite",
            "InviteVerb",
            "print a token with which a machine joins the cluster as a node",
        ),
        "nodes": ListedVerb(
            "nodes.nodes", "NodesVerb", "list the nodes with state, GPUs, interfaces and versions"
        ),
        "launch": ListedVerb(
            "launching.launch",
            "LaunchVerb",
            "start a recipe, script or exported job on all nodes or none",
        ),
        "status": ListedVerb(
            "watching.status",
            "StatusVerb",
            "show one job: cause of a failure, numbers per rank and link",
        ),
        "stop": ListedVerb(
            "controlling.stop", "StopVerb", "end a job on all nodes; ranks get time to finish"
        ),
    },
    "Nodes": {
        "install": ListedVerb(
            "nodes.install", "InstallVerb", "turn machines into nodes through ssh"
        ),
        "add": ListedVerb(
            "nodes.add", "AddVerb", "add a node that multicast does not reach; it is remembered"
        ),
        "forget": ListedVerb(
            "nodes.forget", "ForgetVerb", "forget a node that was added, or silent ones"
        ),
        "upgrade": ListedVerb(
            "nodes.upgrade", "UpgradeVerb", "upgrade nodes to this machine's versions through ssh"
        ),
        "agent": ListedVerb(
            "nodes.agent", "AgentVerb", "run this machine as a node: join, run, drain, offer, leave"
        ),
        "doctor": ListedVerb(
            "nodes.doctor", "DoctorVerb", "find what keeps nodes or a launch from training"
        ),
        "measure": ListedVerb(
            "nodes.measure",
            "MeasureVerb",
            "measure every link in both directions, and CPU and GPU speeds",
        ),
        "bench": ListedVerb(
            "nodes.bench",
            "BenchVerb",
            "time all-reduce, all-gather and messages, as training sends them",
        ),
        "accept": ListedVerb(
            "nodes.accept",
            "AcceptVerb",
            "run acceptance tests: train, measure and break jobs on nodes",
        ),
        "history": ListedVerb(
            "nodes.history", "HistoryVerb", "show what a node did, with and without jobs"
        ),
    },
    "Members of the cluster": {
        "members": ListedVerb(
            "membership.members",
            "MembersVerb",
            "list members of the cluster and when their certificates expire",
        ),
        "revoke": ListedVerb(
            "membership.revoke", "RevokeVerb", "revoke the certificate of a node or driver"
        ),
        "driver": ListedVerb(
            "membership.driver",
            "DriverVerb",
            "manage drivers of jobs: invite, join, revoke, backup, restore",
        ),
    },
    "Files on nodes": {
        "push": ListedVerb(
            "nodes.files.push", "PushVerb", "copy a model or data set to nodes, which pass it on"
        ),
        "pull": ListedVerb(
            "nodes.files.pull",
            "PullVerb",
            "fetch what a job wrote, or a model or data set of a node",
        ),
        "du": ListedVerb(
            "nodes.files.du",
            "DuVerb",
            "list large files on nodes, with size and last use",
        ),
        "gc": ListedVerb(
            "nodes.files.gc",
            "GcVerb",
            "delete files that no job uses; first list them",
        ),
    },
    "Plan and launch": {
        "recipes": ListedVerb(
            "launching.recipes",
            "RecipesVerb",
            "list the built-in recipes, with purpose and GPU memory",
        ),
        "settings": ListedVerb(
            "watching.settings",
            "SettingsVerb",
            "list the settings of a job or a recipe, and where each comes from",
        ),
        "plan": ListedVerb(
            "launching.planning", "PlanVerb", "predict a recipe's step on the nodes; start nothing"
        ),
        "panel": ListedVerb(
            "panel.open_panel",
            "OpenPanelVerb",
            "choose nodes, GPUs and networks by clicking, and launch",
        ),
        "resume": ListedVerb(
            "launching.resume",
            "ResumeVerb",
            "resume a run where it ended, on the same or other nodes",
        ),
        "export": ListedVerb(
            "launching.export",
            "ExportVerb",
            "write a job to a file, with recipe, script, nodes and options",
        ),
    },
    "Cells on the cluster": {
        "session": ListedVerb(
            "sessions.session",
            "SessionVerb",
            "keep ranks that run cells: start, attach, auto, pull, push",
        ),
        "cell": ListedVerb(
            "sessions.cell", "CellVerb", "run a cell on the ranks of a session, with its variables"
        ),
    },
    "Watch jobs": {
        "jobs": ListedVerb(
            "watching.jobs", "JobsVerb", "list running jobs and the newest ended ones"
        ),
        "attach": ListedVerb(
            "watching.attach",
            "AttachVerb",
            "show a job live with its history, or why it still waits for nodes",
        ),
        "logs": ListedVerb(
            "watching.logs", "LogsVerb", "show or save what the ranks print, in order of time"
        ),
        "compare": ListedVerb(
            "watching.compare",
            "CompareVerb",
            "show jobs side by side: figures, and settings that differ",
        ),
        "plot": ListedVerb("watching.plot", "PlotVerb", "draw the current picture of a job"),
        "trace": ListedVerb(
            "watching.trace",
            "TraceVerb",
            "draw a recorded step of a job compared with the predicted one",
        ),
        "tensorboard": ListedVerb(
            "watching.tensorboard", "TensorBoardVerb", "show jobs in TensorBoard"
        ),
        "stacks": ListedVerb(
            "watching.stacks", "StacksVerb", "show every rank's current stack, for jobs that hang"
        ),
        "report": ListedVerb(
            "watching.report",
            "ReportVerb",
            "write logs, records and evidence of a job into one file",
        ),
    },
    "Change and end jobs": {
        "set": ListedVerb(
            "controlling.set",
            "SetVerb",
            "change settings of a running job: steps, learning rate, intervals",
        ),
        "save": ListedVerb(
            "controlling.save",
            "SaveVerb",
            "save a checkpoint after the current step; the job continues",
        ),
        "kill": ListedVerb(
            "controlling.kill",
            "KillVerb",
            "end a job on all nodes immediately, or kill one of its ranks",
        ),
        "rename": ListedVerb("controlling.rename", "RenameVerb", "give a job another name"),
        "note": ListedVerb("controlling.note", "NoteVerb", "attach a note to a job"),
        "rm": ListedVerb(
            "controlling.rm",
            "RmVerb",
            "delete ended jobs; first say what that frees, and what stays",
        ),
    },
    "Use what was trained": {
        "checkpoints": ListedVerb(
            "controlling.checkpoints",
            "CheckpointsVerb",
            "list what a run has saved; delete, pin, copy or export one",
        ),
        "generate": ListedVerb(
            "launching.answering.generate",
            "GenerateVerb",
            "continue a text with a job's newest checkpoint, also in mid-run",
        ),
        "chat": ListedVerb(
            "launching.answering.chat",
            "ChatVerb",
            "talk with a job's newest checkpoint or a model's directory",
        ),
        "serve": ListedVerb(
            "launching.answering.serve",
            "ServeVerb",
            "serve a job's newest checkpoint, or a model, to OpenAI clients",
        ),
    },
    "mntrain itself": {
        "config": ListedVerb(
            "config", "ConfigVerb", "list timeouts, intervals and limits, and where each was set"
        ),
        "completion": ListedVerb(
            "completion_script", "CompletionVerb", "print what a shell needs to complete commands"
        ),
    },
}
"""All verbs by heading of ``--help``, in its order: the five basic ones first."""

VERBS: Final[Mapping[str, ListedVerb]] = {
    name: one for verbs in HEADINGS.values() for name, one in verbs.items()
}
"""All verbs by name."""


RENAMED: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("dry-run",): ("launch", "--dry-run"),
    ("recipe", "show"): ("settings",),
    ("agent", "lend"): ("agent", "offer"),
}
"""Commands by their former names, accepted until 1.0."""


class VerbTable(Mapping[str, "Verb"]):
    """All verbs by name. Names are cheap; a verb is imported when it is first used."""

    def __init__(self, listed: Mapping[str, ListedVerb]) -> None:
        self._listed = listed
        self._made: dict[str, Verb] = {}

    def __getitem__(self, name: str) -> Verb:
        if name not in self._made:
            listed = self._listed[name]
            module = import_module(f"{__package__}.{listed.module}")
            verb: Verb = getattr(module, listed.kind)()
            verb.name, verb.help = name, listed.help
            self._made[name] = verb
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._listed

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


TABLE: Final = VerbTable(VERBS)
