"""Answers: the types of what ``--json`` prints, by command.

``docs/output.schema.json`` is made of them by ``python -m scripts.output_schema``; the tests
compare what verbs answer with it. A name means one thing everywhere, and has one type: ``node`` is
the name of a node, ``node_id`` its id; ``job_id`` is the id of a job, ``world_size`` a number of
ranks, ``elapsed_s`` how long a job has run, ``size_bytes`` a size.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Any, Final

import msgspec

from jupyter_mntrain.cluster.files.job_files import PulledFiles, WrittenFiles
from jupyter_mntrain.cluster.files.pushing import Pushed
from jupyter_mntrain.cluster.handle.checkpoints import KeptCheckpoint
from jupyter_mntrain.cluster.handle.large_files import Pulled
from jupyter_mntrain.cluster.history.logs import LogLine
from jupyter_mntrain.cluster.launch.record_changes import JobRemoval, SettingsChanged
from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.launch.files.records import Cleaned, NodeSpace
from jupyter_mntrain.launch.torchrun import NodeCommand
from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptanceReport
from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.metrics.ranking import Ranking
from jupyter_mntrain.metrics.summary import JobSummary, WrittenText
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.checkpoint import RunCheckpoints
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport
from jupyter_mntrain.model.records.job import JobSpec, JobState, Leftover, RankStack
from jupyter_mntrain.model.records.node import Availability, LinkMeasurement, NodeView
from jupyter_mntrain.model.records.plan import DeviceMeasurement, Plan, StepSpans
from jupyter_mntrain.model.records.sequences import DataPreview
from jupyter_mntrain.model.records.session import End
from jupyter_mntrain.model.records.setting import DifferentSetting, Setting, SettingChange
from jupyter_mntrain.model.sources.source import Allocation
from jupyter_mntrain.model.text.conversation import ChatMessage
from jupyter_mntrain.plan.software.versions import Divergence
from jupyter_mntrain.recipe.memory import MemoryEstimate
from jupyter_mntrain.verbs.nodes.installing.host import InstalledHost
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.workload.memory_fit import RankMemory

LEFT_OUT: Final = msgspec.UNSET
"""Default of optional fields."""


def rows(one: Any) -> Any:
    """Return the type of a list."""
    return GenericAlias(list, (one,))


def answer(name: str, of: type[msgspec.Struct] | None = None, /, **fields: Any) -> Any:
    """Return a type for an object.

    Args:
        of: a record whose fields it has, too.
        fields: others, each with its type, or with that and a default.
    """
    known = {} if of is None else {one.encode_name: one for one in msgspec.structs.fields(of)}
    types: dict[str, Any] = {
        key: one.type if one.required else (one.type, LEFT_OUT) for key, one in known.items()
    }
    made: list[Any] = []
    for key, one in (types | fields).items():
        if isinstance(one, tuple):
            made.append((key, one[0] | msgspec.UnsetType, LEFT_OUT))
        else:
            made.append((key, one))
    return msgspec.defstruct(name, made, kw_only=True)


Names = list[str]
Problems = list[Problem]
MAYBE_WARNINGS = (Problems, LEFT_OUT)

Project = answer("Project", root=str, count=int, size_bytes=int, sha256=str)
Started = answer(
    "StartedJob",
    job_id=JobId,
    state=JobState,
    nodes=Names,
    name=str,
    warnings=MAYBE_WARNINGS,
    already_running=(bool, LEFT_OUT),
    project=(Project, LEFT_OUT),
    auto=(str, LEFT_OUT),
    plan=(Plan, LEFT_OUT),
    resumes=(JobId, LEFT_OUT),
    run=(JobId | None, LEFT_OUT),
    from_run=(JobId | None, LEFT_OUT),
    from_path=(str | None, LEFT_OUT),
    from_step=(int | None, LEFT_OUT),
    changes=(list[SettingChange], LEFT_OUT),
)
Files = answer("JobFilesInShort", count=int, size_bytes=int, paths=Names)
Status = answer(
    "JobStatus",
    JobSummary,
    step_s=float | None,
    files=(Files | None, LEFT_OUT),
    already_running=(bool, LEFT_OUT),
)
Waiting = answer(
    "AwaitedJob", cluster=str, allocation=Allocation, state=str, problem=Problem | None
)
Detached = answer(
    "Detached",
    job_id=(JobId, LEFT_OUT),
    state=(JobState, LEFT_OUT),
    cluster=(str, LEFT_OUT),
    detached=bool,
)
Asked = answer("AskedNodes", allocation_id=str, cluster=str, log=str)
Submission = answer("Submission", source=str, submitted=str)
DryRun = answer(
    "DryRun",
    spec=JobSpec,
    commands=list[NodeCommand],
    project=(Project, LEFT_OUT),
    warnings=MAYBE_WARNINGS,
    memory=(rows(answer("PlannedMemory", RankMemory, total_bytes=int, fits=bool)) | None, LEFT_OUT),
    auto=(str, LEFT_OUT),
    plan=(Plan, LEFT_OUT),
    doctor=(DoctorReport, LEFT_OUT),
)
LAUNCHED = (Started, Status, DryRun, Waiting, Detached, Asked, Submission)
Process = answer("LeftProcess", Leftover, node=str)
Ended = answer(
    "EndedJob",
    job_id=(JobId, LEFT_OUT),
    state=(str, LEFT_OUT),
    leftovers=(rows(Process), LEFT_OUT),
    waits_for=(rows(Process), LEFT_OUT),
    unknown_nodes=(Names, LEFT_OUT),
    problem=(Problem, LEFT_OUT),
    cluster=(str, LEFT_OUT),
    given_back=(bool, LEFT_OUT),
)
Labeled = answer("LabeledJob", job_id=JobId, name=str, note=str, silent=Names)
Invitation = answer(
    "Invitation", token=str, role=str, uses=int, expires_s=float, joined=(Names, LEFT_OUT)
)
Revoked = answer("RevokedMember", member=str, member_id=str, silent=Names)
Hosts = answer("Hosts", hosts=list[InstalledHost])
Recipe = answer(
    "BuiltInRecipe",
    name=str,
    about=str,
    world_size=int,
    size=str | None,
    text=str,
    estimate=answer("BuiltInEstimate", MemoryEstimate, total_bytes=int) | None,
)
Joined = answer(
    "JoinedNode",
    node=str,
    node_id=NodeId,
    cluster=str,
    warnings=MAYBE_WARNINGS,
    service=(Names, LEFT_OUT),
)
Offered = answer("NodeAvailability", Availability, node=str)
Done = answer("DoneOnNode", done=str)
Served = answer("ServedModel", job_id=JobId, url=str, model=str, node=str)
Generated = answer("GeneratedText", WrittenText, job_id=JobId)
NothingGenerated = answer("NoText", job_id=JobId, state=JobState, problem=Problem | None)
ConfigSetting = answer(
    "ConfigSetting", key=str, value=Any, default=Any, source=str, reason=str, unit=str
)
EndedCells = rows(answer("EndedCell", rank=int, end=End, took_s=float))
RunCell = answer("RunCell", job_id=JobId, cells=EndedCells)
SentVariable = answer("SentVariable", job_id=JobId, variable=str, size_bytes=int, ranks=list[int])
Written = answer("WrittenFile", job_id=JobId, file=str | None)

ANSWERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "invite": (Invitation,),
    "nodes": (rows(answer("ListedNode", NodeView, node=str, divergences=list[Divergence])),),
    "launch": LAUNCHED,
    "status": (Status, Waiting),
    "stop": (Ended,),
    "install": (Hosts,),
    "add": (answer("AddedNode", NodeView, node=str),),
    "forget": (answer("Forgotten", forgotten=Names),),
    "upgrade": (Hosts,),
    "agent join": (Joined,),
    "agent run": (Joined,),
    "agent drain": (Offered,),
    "agent resume": (Offered,),
    "agent offer": (Offered,),
    "agent leave": (answer("LeftCluster", left=str),),
    "agent install-service": (Done,),
    "agent remove-service": (Done,),
    "agent read": (answer("ReadRecords", read=str),),
    "doctor": (DoctorReport,),
    "measure": (
        answer(
            "Measured",
            links=(list[LinkMeasurement], LEFT_OUT),
            is_partial=(bool, LEFT_OUT),
            devices=(rows(answer("MeasuredDevice", DeviceMeasurement, node=str)), LEFT_OUT),
            problems=(Problems, LEFT_OUT),
        ),
    ),
    "bench": (BenchReport,),
    "accept": (answer("WrittenAcceptance", AcceptanceReport, files=Names),),
    "history": (NodeHistory,),
    "members": (
        rows(
            answer(
                "Member",
                member=str,
                member_id=str,
                role=str,
                joined_s=float,
                expires_s=float,
                revoked_s=float | None,
            )
        ),
    ),
    "revoke": (Revoked,),
    "driver invite": (Invitation,),
    "driver join": (
        answer("JoinedDriver", member=str, cluster=str, role=str, warnings=MAYBE_WARNINGS),
    ),
    "driver revoke": (Revoked,),
    "driver backup": (answer("Backup", file=str, cluster=str),),
    "driver restore": (
        answer("Restored", cluster=str, member_count=int, made_s=float, moved_to=str | None),
    ),
    "push": (Pushed,),
    "pull": (
        Pulled,
        PulledFiles,
        answer("ListedFiles", WrittenFiles, count=int, size_bytes=int, paths=Names),
    ),
    "du": (answer("Spaces", spaces=dict[str, NodeSpace], problems=Problems),),
    "gc": (answer("CleanedNodes", is_done=bool, cleaned=dict[str, Cleaned], problems=Problems),),
    "recipes": (rows(Recipe), Recipe),
    "settings": (list[Setting], DataPreview),
    "plan": (Plan,),
    "panel": (
        answer(
            "PanelForm",
            Form,
            command=str,
            resume=(answer("PanelResume", label=str, text=str), LEFT_OUT),
        ),
        answer("OpenedPanel", panel=str),
    ),
    "resume": LAUNCHED,
    "session start": (Started,),
    "session restart": (Started,),
    "session attach": (RunCell,),
    "session interrupt": (
        answer("InterruptedSession", job_id=JobId, running_ranks=tuple[int, ...]),
    ),
    "session auto": (answer("AutomaticCells", is_on=bool, job_id=(JobId, LEFT_OUT)),),
    "session pull": (SentVariable,),
    "session push": (SentVariable,),
    "cell": (RunCell,),
    "export": (answer("ExportedJob", Written, left_out=Names, text=str),),
    "jobs": (
        rows(
            answer(
                "ListedJob",
                job_id=JobId,
                name=str,
                state=JobState,
                note=str,
                nodes=Names,
                world_size=int,
                step=int | None,
                submitted_s=float,
                elapsed_s=float | None,
                run=JobId,
                saved_step=int | None,
                resumed_step=int | None,
                problem=Problem | None,
                warnings=Problems,
            )
        ),
    ),
    "attach": (Status, Waiting, Detached),
    "logs": (
        list[LogLine],
        answer("WrittenLog", Written, count=int),
        answer("FollowedJob", job_id=JobId, state=JobState),
        Detached,
    ),
    "compare": (
        answer(
            "ComparedJobs",
            jobs=list[JobSummary],
            differing=list[DifferentSetting],
            same=Names,
            ranking=Ranking,
        ),
    ),
    "plot": (answer("DrawnJob", Written, size_bytes=int),),
    "trace": (
        answer(
            "TracedStep",
            Written,
            recorded_steps=list[int],
            recorded=StepSpans,
            predicted=StepSpans | None,
        ),
    ),
    "tensorboard": (answer("EventFiles", job_ids=list[JobId], paths=Names, numbers=int),),
    "stacks": (rows(answer("Stack", RankStack, node=str)),),
    "report": (answer("Report", Written, parts=Names),),
    "set": (answer("ChangedJob", SettingsChanged, job_id=JobId),),
    "save": (
        answer("SavedJob", job_id=JobId, saved_step=int | None, problem=(Problem | None, LEFT_OUT)),
    ),
    "kill": (Ended, answer("KilledRank", job_id=JobId, rank=int, node=str, pid=int | None)),
    "rename": (Labeled,),
    "note": (Labeled,),
    "rm": (
        answer(
            "RemovedJobs",
            is_done=bool,
            removals=rows(answer("Removal", JobRemoval, size_bytes=int)),
        ),
    ),
    "checkpoints": (answer("Checkpoints", RunCheckpoints, job_id=JobId), KeptCheckpoint),
    "generate": (Generated, NothingGenerated),
    "chat": (answer("Chat", job_id=JobId, step=int | None, messages=list[ChatMessage]),),
    "serve": (Served,),
    "config": (answer("Configuration", file=str, settings=rows(ConfigSetting)),),
    "completion": (answer("CompletionScript", shell=str, script=str),),
}
"""The possible answers of each command."""
