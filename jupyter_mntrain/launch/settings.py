"""Settings of a launch, and the effects of changed settings on a resumed run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, SetIn
from jupyter_mntrain.model.records.setting import Origin, Setting, SettingChange
from jupyter_mntrain.model.text.secrets import shown_words

OPTIONS: Final[Mapping[str, str]] = {
    "name": "name",
    "restarts": "max_restarts",
    "min_nodes": "min_nodes",
    "priority": "priority",
    "port": "port",
    "on_stall": "on_stall",
    "on_nan": "on_nan",
    "link_capacity": "link_capacity_bytes_per_s",
    "mixed_versions": "mixed_versions",
    "torchrun": "torchrun_arguments",
    "python": "python",
    "queue_limit": "queue_limit_s",
    "lost_limit": "lost_limit_s",
}
"""Options of a launch, and the fields of :class:`JobSpec` that hold them."""


_NO_LIMITS: Final = frozenset({"queue_limit", "lost_limit"})
"""Options for which no value means no limit."""


def settings_of_job(spec: JobSpec, run: JobId | None = None) -> tuple[Setting, ...]:
    """Return the settings of a job, before or after it ran; for a script only those of the launch.

    Args:
        run: that it belongs to, if it has begun.

    Raises:
        RecipeError: its recipe is not valid.
    """
    found = program_of(spec).settings()
    on_nan = next((one.in_effect for one in found if one.name == "train.on_nan"), "report")
    # Known only with the job: how reports call it, and what its recipe says.
    chosen = {"report.run_name": run, "launch.on_nan": on_nan}
    return tuple(
        msgspec.structs.replace(one, chosen=chosen[one.name])
        if one.value is None and one.name in chosen
        else one
        for one in (*found, *launch_settings(spec))
    )


def launch_settings(spec: JobSpec) -> Iterator[Setting]:
    """Yield the options of a launch, such as ``launch.name``."""
    usual = JobSpec(entry=(), participants=())
    for option, field in OPTIONS.items():
        name, value = f"launch.{option}", getattr(spec, field)
        origin: Origin = "default"
        if name in spec.set_in:
            origin = spec.set_in[name]
        elif value != getattr(usual, field) and option != "name":
            origin = "option"
        elif value is None and option not in _NO_LIMITS:
            origin = "auto"
        shown = shown_words(value) if option == "torchrun" else value
        yield Setting(name=name, value=msgspec.to_builtins(shown), origin=origin)


def set_in_panel(spec: JobSpec, overrides: Sequence[str]) -> JobSpec:
    """Return the job with these overrides, and all options that are not defaults, marked as chosen
    in the panel.
    """
    chosen = {setting_of(override) for override in overrides}
    chosen |= {one.name for one in launch_settings(spec) if one.origin == "option"}
    set_in: dict[str, SetIn] = {**spec.set_in, **dict.fromkeys(chosen, "panel")}
    return msgspec.structs.replace(spec, set_in=set_in)


def setting_of(override: str) -> str:
    """Return the ``section.field`` that ``section.field=value`` changes."""
    section, _, field = override.partition("=")[0].strip().partition(".")
    return f"{section}.{field}"


def refuse_unfit(changes: Sequence[SettingChange], whose: str) -> None:
    """Refuse changes of settings that do not fit a checkpoint.

    Raises:
        SpecError: as told.
    """
    if unfit := [one for one in changes if one.effect == "refused"]:
        raise SpecError(
            f"{', '.join(map(str, unfit))}: a checkpoint of {whose} does not fit",
            fix="leave it as it was, or start over with launch",
        )


def exactness_notes(changes: Sequence[SettingChange]) -> tuple[Problem, ...]:
    """Return notes to show before the start if losses will differ from an uninterrupted run's."""
    # By name: whoever shows them shows the changes with their values, too.
    other = [one.name for one in changes if one.effect == "other"]
    rounded = [one.name for one in changes if one.effect == "rounding"]
    notes = []
    if other:
        cause = f"{', '.join(other)}: from here on the losses differ from those of an unbroken run"
        notes.append(Problem(kind=Kind.OTHER_LOSSES, cause=cause))
    if rounded:
        cause = f"{', '.join(rounded)}: losses equal those of an unbroken run except for rounding"
        notes.append(Problem(kind=Kind.OTHER_LOSSES, cause=cause))
    return tuple(notes)
