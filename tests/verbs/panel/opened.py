"""Open panels, and what they show."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.last_choices import Memory
from jupyter_mntrain.verbs.panel.node_row import FormRow
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import StandInCluster
from tests.standin.screen import make_context

RECIPE = """
[model]
preset = "llama-tiny"

[pipeline]
microbatches = 6

[train]
batch_size = 12
"""
SCRIPT = "print('hello')\n"


def open_panel(
    cluster: StandInCluster, here: Path, target: str | None = None, **changes: Any
) -> Panel:
    context = make_context(cluster, directory=here, **changes)
    memory = Memory(here / "state" / "panel.json")
    return Panel(context, Namespace(cluster=None, agent=None), target=target, memory=memory)


def choose(panel: Panel, **fields: Any) -> Form:
    panel.choices = msgspec.structs.replace(panel.choices, **fields)
    return panel.form()


def row(form: Form, name: str) -> FormRow:
    return next(one for one in form.rows if one.name == name)


def kinds(form: Form) -> dict[str, list[Kind]]:
    """Of what is wrong at each row."""
    found = {one.name: [c.problem.kind for c in one.checks if c.problem] for one in form.rows}
    return {name: some for name, some in found.items() if some}


def words(form: Form) -> str:
    checks = [check for one in form.rows for check in one.checks] + list(form.settings)
    return " | ".join(check.text for check in checks)
