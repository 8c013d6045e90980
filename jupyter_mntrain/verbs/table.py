"""The one table of verbs, behind both the magic and the command line."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.verbs.launching.export import Export
from jupyter_mntrain.verbs.launching.generate import Generate
from jupyter_mntrain.verbs.launching.launch import DryRun, Launch
from jupyter_mntrain.verbs.launching.recipes import Recipes
from jupyter_mntrain.verbs.nodes.drivers import Driver
from jupyter_mntrain.verbs.nodes.measure import Measure
from jupyter_mntrain.verbs.nodes.members import Invite, Members, Revoke
from jupyter_mntrain.verbs.nodes.nodes import Add, Forget, Nodes
from jupyter_mntrain.verbs.panel.open_panel import OpenPanel
from jupyter_mntrain.verbs.verb import Verb
from jupyter_mntrain.verbs.watching.jobs import Jobs, Status
from jupyter_mntrain.verbs.watching.stop import Kill, Save, Stop
from jupyter_mntrain.verbs.watching.watch import Attach, Logs, Plot, Stacks

_VERBS: tuple[Verb, ...] = (
    Nodes(),
    Add(),
    Forget(),
    Invite(),
    Members(),
    Revoke(),
    Driver(),
    Measure(),
    OpenPanel(),
    Recipes(),
    DryRun(),
    Launch(),
    Jobs(),
    Status(),
    Attach(),
    Plot(),
    Logs(),
    Stacks(),
    Export(),
    Generate(),
    Save(),
    Stop(),
    Kill(),
)

TABLE: Final[dict[str, Verb]] = {verb.name: verb for verb in _VERBS}
