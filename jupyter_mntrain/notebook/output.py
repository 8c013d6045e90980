"""Notebook outputs: the boundary where text reaches a page or a saved notebook."""

from __future__ import annotations

from typing import Any, NamedTuple

from IPython.display import DisplayHandle, display

from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.show.bundles import Bundle


class Client(NamedTuple):
    """Who runs a cell, as far as its request shows.

    Args:
        is_person: a person can answer, and click: no papermill, no nbclient.
        has_cells: it has named the cell, as pages do; jupyter console and qtconsole have none, and
            show no output again.
    """

    is_person: bool = True
    has_cells: bool = True


def _request(shell: Any) -> dict[str, Any] | None:
    """Return the request that a kernel's shell serves; ``None`` outside a kernel."""
    get_parent = getattr(getattr(shell, "kernel", None), "get_parent", None)
    return None if get_parent is None else get_parent("shell") or {}


def is_typed(shell: Any) -> bool:
    """Whether a cell of the notebook runs; what a page itself asks the kernel leaves no history."""
    request = _request(shell) or {}
    content = request.get("content", {})
    return bool(content.get("store_history", True)) and not content.get("silent", False)


def client_of(shell: Any) -> Client:
    """Return who runs the current cell of a kernel's shell."""
    request = _request(shell)
    if request is None:
        return Client()
    asks = bool(request.get("content", {}).get("allow_stdin", True))
    return Client(is_person=asks, has_cells=not asks or "cellId" in request.get("metadata", {}))


def safe_bundle(bundle: Bundle) -> Bundle:
    """Return the bundle with all text safe to display; pictures and our own data are unchanged."""
    return {
        kind: visible(content) if kind.startswith("text/") else content
        for kind, content in bundle.items()
    }


def show_bundle(
    bundle: Bundle,
    metadata: dict[str, Any] | None = None,
    identity: str = "",
    *,
    is_update: bool = False,
) -> None:
    """Display a bundle below the running cell.

    Args:
        identity: of a display that is updated later; empty otherwise.
        is_update: takes the place of the display with this identity.
    """
    named: dict[str, Any] = {"display_id": identity, "update": is_update} if identity else {}
    display(safe_bundle(bundle), metadata=metadata, raw=True, **named)


class NotebookOutput:
    """An output that can be updated. Takes bundles and widgets."""

    def __init__(self) -> None:
        self._handle = DisplayHandle()

    def display(self, obj: Any, **options: Any) -> None:
        self._handle.display(_safe(obj), **options)

    def update(self, obj: Any, **options: Any) -> None:
        self._handle.update(_safe(obj), **options)


def _safe(content: Any) -> Any:
    return safe_bundle(content) if isinstance(content, dict) else content
