"""Table of verbs, for both the magic and the command line."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.verbs.config import ConfigVerb
from jupyter_mntrain.verbs.launching.export import ExportVerb
from jupyter_mntrain.verbs.launching.generate import GenerateVerb
from jupyter_mntrain.verbs.launching.launch import DryRunVerb, LaunchVerb
from jupyter_mntrain.verbs.launching.recipes import RecipesVerb
from jupyter_mntrain.verbs.nodes.agent import AgentVerb
from jupyter_mntrain.verbs.nodes.drivers import DriverVerb
from jupyter_mntrain.verbs.nodes.measure import MeasureVerb
from jupyter_mntrain.verbs.nodes.members import InviteVerb, MembersVerb, RevokeVerb
from jupyter_mntrain.verbs.nodes.nodes import AddVerb, ForgetVerb, NodesVerb
from jupyter_mntrain.verbs.panel.open_panel import OpenPanelVerb
from jupyter_mntrain.verbs.verb import Verb
from jupyter_mntrain.verbs.watching.jobs import JobsVerb, StatusVerb
from jupyter_mntrain.verbs.watching.stop import KillVerb, SaveVerb, StopVerb
from jupyter_mntrain.verbs.watching.watch import AttachVerb, LogsVerb, PlotVerb, StacksVerb

_VERBS: tuple[Verb, ...] = (
    NodesVerb(),
    AddVerb(),
    ForgetVerb(),
    InviteVerb(),
    MembersVerb(),
    RevokeVerb(),
    DriverVerb(),
    AgentVerb(),
    MeasureVerb(),
    OpenPanelVerb(),
    RecipesVerb(),
    DryRunVerb(),
    LaunchVerb(),
    JobsVerb(),
    StatusVerb(),
    AttachVerb(),
    PlotVerb(),
    LogsVerb(),
    StacksVerb(),
    ExportVerb(),
    GenerateVerb(),
    SaveVerb(),
    StopVerb(),
    KillVerb(),
    ConfigVerb(),
)

TABLE: Final[dict[str, Verb]] = {verb.name: verb for verb in _VERBS}
