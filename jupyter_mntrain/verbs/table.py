"""The one table of verbs, behind both the magic and the command line."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.verbs.drivers import Driver
from jupyter_mntrain.verbs.ending import Kill, Save, Stop
from jupyter_mntrain.verbs.export import Export
from jupyter_mntrain.verbs.generating import Generate
from jupyter_mntrain.verbs.inviting import Invite, Members, Revoke
from jupyter_mntrain.verbs.jobs import Jobs, Status
from jupyter_mntrain.verbs.launching import DryRun, Launch
from jupyter_mntrain.verbs.links import Measure
from jupyter_mntrain.verbs.nodes import Add, Forget, Nodes
from jupyter_mntrain.verbs.panel.verb import OpenPanel
from jupyter_mntrain.verbs.recipes import Recipes
from jupyter_mntrain.verbs.verb import Verb
from jupyter_mntrain.verbs.watching import Attach, Logs, Plot, Stacks

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
