"""Bad rows: records that cannot be trained on."""

from __future__ import annotations

from jupyter_mntrain.model.errors import RecipeError


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
