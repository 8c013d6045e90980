"""Findings: collects the results of checks, by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.verbs.panel.checks.check import RowCheck
from jupyter_mntrain.verbs.panel.node_row import FormRow


class Findings:
    """Results of checks, by the row they concern."""

    def __init__(self, rows: Sequence[FormRow]) -> None:
        self.settings: list[RowCheck] = []
        self.first_error: Problem | None = None
        self._passed: Counter[str] = Counter()
        self._of: dict[str, list[RowCheck]] = {row.name: list(row.checks) for row in rows}
        for row in rows:
            for check in row.checks:
                self._note(row.name, check)

    @property
    def warnings(self) -> list[str]:
        """Names of the rows with warnings, repeated for each warning."""
        return [n for n, checks in self._of.items() for c in checks if c.level == "warning"]

    def passed(self, name: str) -> None:
        self._passed[name] += 1

    def add(self, error: MntrainError, *, to_settings: bool = False) -> None:
        """Add an error of a launch to the row it names."""
        check = RowCheck(level="error", problem=error.problem)
        self.put(None if to_settings else error.node, check)

    @contextmanager
    def of_settings(self, but: Sequence[Problem] = ()) -> Iterator[None]:
        """Add an error that is raised inside to the settings.

        Args:
            but: what is shown elsewhere already.
        """
        try:
            yield
        except MntrainError as error:
            if error.problem not in but:
                self.add(error, to_settings=True)

    def put(self, name: str | None, check: RowCheck) -> None:
        """Add a check to a row; without such a row to the settings, with the node's name."""
        if name not in self._of:
            name = None
        elif check.problem is not None:
            check = msgspec.structs.replace(
                check, problem=msgspec.structs.replace(check.problem, node=None)
            )
        (self._of[name] if name else self.settings).append(check)
        self._note(name, check)

    def rows(self, rows: Sequence[FormRow]) -> tuple[FormRow, ...]:
        return tuple(msgspec.structs.replace(row, checks=self._checks(row)) for row in rows)

    def _checks(self, row: FormRow) -> tuple[RowCheck, ...]:
        found = self._of[row.name]
        passed = self._passed[row.name]
        if row.takes_part and passed and not found:
            return (RowCheck(level="passed", passed=passed),)
        return tuple(found)

    def _note(self, name: str | None, check: RowCheck) -> None:
        if check.level == "error" and self.first_error is None and check.problem is not None:
            node = name or check.problem.node
            self.first_error = msgspec.structs.replace(check.problem, node=node)
