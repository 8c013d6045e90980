"""Bad rows: records that cannot be trained on, refused together or left out and counted."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.recipe.parts.data import DataSection

_MOST_REFUSED = 1000
"""Rows after which reading stops if none may be bad: most likely all are."""
_EXAMPLES = 3
_MOST_KINDS = 5


class RowError(RecipeError):
    """A record that cannot be trained on, while others of its file may.

    Args:
        where: file and row.
        what: what is wrong with it: the same words for each row of this kind.
        detail: what differs from row to row.
    """

    def __init__(self, where: str, what: str, *, fix: str, detail: str = "") -> None:
        self.where, self.what, self.detail = where, what, detail
        super().__init__(f"{where}: {what}{detail}", fix=fix)


class SkippedRows(Record, frozen=True):
    """Rows left out for one reason.

    Args:
        what: the reason.
        examples: where the first of them are.
    """

    what: str
    count: int
    examples: tuple[str, ...]


class BadRows:
    """The bad rows of one pass over the data, by kind.

    Attributes:
        rows: number of rows read so far, bad ones included.
    """

    def __init__(self, section: DataSection) -> None:
        self._section = section
        self._kinds: dict[str, list[RowError]] = {}
        self._counts: dict[str, int] = {}
        self.rows = 0

    @property
    def skips(self) -> bool:
        return self._section.on_bad_rows == "skip"

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    @property
    def gives_up(self) -> bool:
        """Whether reading on would only find more of them."""
        return not self.skips and self.count >= _MOST_REFUSED

    def add(self, error: RowError) -> None:
        examples = self._kinds.setdefault(error.what, [])
        if len(examples) < _EXAMPLES:
            examples.append(error)
        self._counts[error.what] = self._counts.get(error.what, 0) + 1

    def skipped(self) -> tuple[SkippedRows, ...]:
        """What was left out, the most frequent kind first."""
        return tuple(
            SkippedRows(what, self._counts[what], tuple(one.where for one in self._kinds[what]))
            for what in self._ordered()
        )

    def settle(self) -> None:
        """End the pass.

        Raises:
            RecipeError: rows are bad and none may be, or more than may be: all kinds in one line.
        """
        count, limit = self.count, self._section.bad_rows_limit
        if not count or (self.skips and count <= limit * self.rows):
            return
        kinds = self._ordered()
        cause = "; ".join(map(self._shown, kinds[:_MOST_KINDS]))
        if len(kinds) > _MOST_KINDS:
            cause += f"; and {len(kinds) - _MOST_KINDS} more kinds"
        if count > 1:
            more = " or more" if self.gives_up else ""
            cause += f"; {count}{more} of {self.rows} rows cannot be trained on"
        fixes = dict.fromkeys(self._kinds[what][0].fix for what in kinds[:_MOST_KINDS])
        otherwise = 'set data.on_bad_rows = "skip"'
        if self.skips:
            cause += f", more than data.bad_rows_limit = {limit:g} allows"
            otherwise = "raise data.bad_rows_limit"
        raise RecipeError(cause, fix=f"{'; '.join(fixes)}; or {otherwise}")

    def _ordered(self) -> list[str]:
        return sorted(self._counts, key=lambda what: -self._counts[what])

    def _shown(self, what: str) -> str:
        first, *others = self._kinds[what]
        left = self._counts[what] - 1
        if not left:
            return first.cause
        return f"{first.cause} (and {left} more: {some_of([one.where for one in others], left)})"
