"""Chosen: what a job does where its recipe leaves that to the nodes' GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.recipe.devices import seats_of
from jupyter_mntrain.recipe.fitting import Fit, fit
from jupyter_mntrain.recipe.sections import Recipe


def fit_on(
    recipe: Recipe, spec: JobSpec, nodes: Sequence[NodeView], kept: Mapping[str, str]
) -> Fit:
    """What a job would train by on the nodes of a live view; as written if one is unknown.

    Args:
        kept: what is chosen already.
    """
    infos = [view.info for view in nodes if view.info]
    try:
        chosen = find_participants(spec.participants, infos)
    except SpecError:
        return Fit(recipe, (), {}, "")  # the launch says so itself
    return fit(recipe, seats_of(recipe, spec.participants, chosen), kept)


def choice_text(found: Fit | None) -> Text | None:
    """The line that says what was chosen; ``None`` if there is nothing to say."""
    return Text(found.said, style="dim") if found is not None and found.said else None
