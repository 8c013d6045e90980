"""Settings of jobs, and differences between jobs."""

from __future__ import annotations

from typing import Any, Literal

from jupyter_mntrain.model._record import Record

Origin = Literal["default", "recipe", "panel", "--set", "option", "auto"]
"""Where a setting came from: ``auto`` = nobody set it, and mntrain chooses; ``option`` = an option
of the launch, like ``--restarts``."""


class Setting(Record, frozen=True, omit_defaults=False):
    """A setting of a job.

    Args:
        name: ``section.field``; options of the launch are in the section ``launch``.
        value: as written, or the default.
        origin: where the value came from.
        chosen: what is used in place of ``auto`` or of no value; ``None`` if that is the same, or
            is decided when the job starts.
    """

    name: str
    value: Any
    origin: Origin
    chosen: Any = None

    @property
    def in_effect(self) -> Any:
        return self.value if self.chosen is None else self.chosen


class DifferentSetting(Record, frozen=True):
    """A setting that differs between jobs, with its values in their order.

    ``None`` = a job that has no such setting: a script has none of a recipe.
    """

    name: str
    values: tuple[Setting | None, ...]


class SettingsComparison(Record, frozen=True):
    """The settings that differ, and the names of the others, in the order of a recipe."""

    differing: tuple[DifferentSetting, ...]
    same: tuple[str, ...]


Effect = Literal["refused", "checked", "other", "rounding", "none"]
"""What a changed setting does to a resumed run: ``refused``: the checkpoint does not fit.
``checked``: the ranks refuse it if the batches differ. ``other``: other losses from there on.
``rounding``: the same losses except for rounding. ``none``: exactly the same.
"""


class SettingChange(Record, frozen=True):
    """A setting that differs from the job that is resumed.

    Args:
        name: ``section.field``.
        before: what was in effect.
        is_automatic: nobody wrote it, neither before nor now: other settings change it.
    """

    name: str
    before: Any
    after: Any
    effect: Effect
    is_automatic: bool = False

    def __str__(self) -> str:
        """Write the change like ``train.steps 400 → 800``, with ``(auto)`` if it was chosen."""
        how = " (auto)" if self.is_automatic else ""
        return f"{self.name} {_shown(self.before)} → {_shown(self.after)}{how}"


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)
