"""Table of verbs, shared by the magic and the command line."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.verbs.config import ConfigVerb
from jupyter_mntrain.verbs.controlling.checkpoints import CheckpointsVerb
from jupyter_mntrain.verbs.controlling.kill import KillVerb
from jupyter_mntrain.verbs.controlling.note import NoteVerb
from jupyter_mntrain.verbs.controlling.rename import RenameVerb
from jupyter_mntrain.verbs.controlling.rm import RmVerb
from jupyter_mntrain.verbs.controlling.save import SaveVerb
from jupyter_mntrain.verbs.controlling.set import SetVerb
from jupyter_mntrain.verbs.controlling.stop import StopVerb
from jupyter_mntrain.verbs.launching.answering.chat import ChatVerb
from jupyter_mntrain.verbs.launching.answering.generate import GenerateVerb
from jupyter_mntrain.verbs.launching.answering.serve import ServeVerb
from jupyter_mntrain.verbs.launching.dry_run import DryRunVerb
from jupyter_mntrain.verbs.launching.export import ExportVerb
from jupyter_mntrain.verbs.launching.launch import LaunchVerb
from jupyter_mntrain.verbs.launching.planning import PlanVerb
from jupyter_mntrain.verbs.launching.recipe import RecipeVerb
from jupyter_mntrain.verbs.launching.recipes import RecipesVerb
from jupyter_mntrain.verbs.launching.resume import ResumeVerb
from jupyter_mntrain.verbs.membership.driver import DriverVerb
from jupyter_mntrain.verbs.membership.invite import InviteVerb
from jupyter_mntrain.verbs.membership.members import MembersVerb
from jupyter_mntrain.verbs.membership.revoke import RevokeVerb
from jupyter_mntrain.verbs.nodes.accept import AcceptVerb
from jupyter_mntrain.verbs.nodes.add import AddVerb
from jupyter_mntrain.verbs.nodes.agent import AgentVerb
from jupyter_mntrain.verbs.nodes.bench import BenchVerb
from jupyter_mntrain.verbs.nodes.doctor import DoctorVerb
from jupyter_mntrain.verbs.nodes.files.du import DuVerb
from jupyter_mntrain.verbs.nodes.files.gc import GcVerb
from jupyter_mntrain.verbs.nodes.files.pull import PullVerb
from jupyter_mntrain.verbs.nodes.files.push import PushVerb
from jupyter_mntrain.verbs.nodes.forget import ForgetVerb
from jupyter_mntrain.verbs.nodes.history import HistoryVerb
from jupyter_mntrain.verbs.nodes.install import InstallVerb
from jupyter_mntrain.verbs.nodes.measure import MeasureVerb
from jupyter_mntrain.verbs.nodes.nodes import NodesVerb
from jupyter_mntrain.verbs.nodes.upgrade import UpgradeVerb
from jupyter_mntrain.verbs.panel.open_panel import OpenPanelVerb
from jupyter_mntrain.verbs.verb import Verb
from jupyter_mntrain.verbs.watching.attach import AttachVerb
from jupyter_mntrain.verbs.watching.compare import CompareVerb
from jupyter_mntrain.verbs.watching.jobs import JobsVerb
from jupyter_mntrain.verbs.watching.logs import LogsVerb
from jupyter_mntrain.verbs.watching.plot import PlotVerb
from jupyter_mntrain.verbs.watching.report import ReportVerb
from jupyter_mntrain.verbs.watching.settings import SettingsVerb
from jupyter_mntrain.verbs.watching.stacks import StacksVerb
from jupyter_mntrain.verbs.watching.status import StatusVerb
from jupyter_mntrain.verbs.watching.tensorboard import TensorBoardVerb
from jupyter_mntrain.verbs.watching.trace import TraceVerb

VERBS: Final[tuple[type[Verb], ...]] = (
    NodesVerb,
    AddVerb,
    ForgetVerb,
    InviteVerb,
    InstallVerb,
    UpgradeVerb,
    MembersVerb,
    RevokeVerb,
    DriverVerb,
    AgentVerb,
    DoctorVerb,
    PushVerb,
    PullVerb,
    DuVerb,
    GcVerb,
    MeasureVerb,
    BenchVerb,
    AcceptVerb,
    HistoryVerb,
    OpenPanelVerb,
    RecipesVerb,
    RecipeVerb,
    PlanVerb,
    DryRunVerb,
    LaunchVerb,
    ResumeVerb,
    JobsVerb,
    StatusVerb,
    SettingsVerb,
    CompareVerb,
    AttachVerb,
    PlotVerb,
    TraceVerb,
    TensorBoardVerb,
    LogsVerb,
    StacksVerb,
    ReportVerb,
    ExportVerb,
    GenerateVerb,
    ChatVerb,
    ServeVerb,
    CheckpointsVerb,
    SaveVerb,
    SetVerb,
    StopVerb,
    KillVerb,
    RenameVerb,
    NoteVerb,
    RmVerb,
    ConfigVerb,
)
"""All verbs, in the order of ``--help``."""

TABLE: Final[dict[str, Verb]] = {verb.name: verb() for verb in VERBS}
