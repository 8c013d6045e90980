"""Panel check: one finding below a row, and the button that applies its fix."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import Choices

Level = Literal["passed", "warning", "error"]


class Fix(Record, frozen=True):
    """A button that fixes the problem, and the choices that it sets."""

    label: str
    choices: Choices


def leave_out(choices: Choices, name: str) -> Fix:
    return Fix(label="Leave it out", choices=choices.with_node(name, is_used=False))


class RowCheck(Record, frozen=True):
    """One line below a row. An error blocks the launch.

    Args:
        problem: what is wrong; ``None`` if the checks passed.
        passed: number of checks that passed.
        fix: a button for the problem's fix, if there is one.
    """

    level: Level
    problem: Problem | None = None
    fix: Fix | None = None
    passed: int = 0

    @property
    def text(self) -> str:
        """The finding in one sentence. It does not name the node, as the row does."""
        if self.problem is None:
            return f"{formats.plural(self.passed, 'check')} passed"
        return str(self.problem)
