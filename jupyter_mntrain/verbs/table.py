"""Table of verbs, for both the magic and the command line."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from jupyter_mntrain.verbs.verb import Verb

MODULES: Final = (
    "nodes.nodes",
    "nodes.add",
    "nodes.forget",
    "membership.invite",
    "membership.members",
    "membership.revoke",
    "membership.driver",
    "nodes.agent",
    "nodes.measure",
    "panel.open_panel",
    "launching.recipes",
    "launching.dry_run",
    "launching.launch",
    "watching.jobs",
    "watching.status",
    "watching.attach",
    "watching.plot",
    "watching.logs",
    "watching.stacks",
    "launching.export",
    "launching.generate",
    "controlling.save",
    "controlling.stop",
    "controlling.kill",
    "config",
)
"""One verb each, in the order of ``--help``: its ``VERB``."""


def _verb(module: str) -> Verb:
    verb: Verb = import_module(f"{__package__}.{module}").VERB
    return verb


TABLE: Final[dict[str, Verb]] = {verb.name: verb for verb in map(_verb, MODULES)}
