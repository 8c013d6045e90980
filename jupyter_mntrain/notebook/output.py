"""Notebook outputs: the edge at which text reaches a page or the saved notebook."""

from __future__ import annotations

from typing import Any

from IPython.display import DisplayHandle, display

from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.show.bundles import Bundle


def safe_bundle(bundle: Bundle) -> Bundle:
    """The bundle with every text in it safe to show. Pictures and data of ours stay."""
    return {
        kind: visible(content) if kind.startswith("text/") else content
        for kind, content in bundle.items()
    }


def show_bundle(bundle: Bundle, metadata: dict[str, Any] | None = None) -> None:
    """Display a bundle below the running cell."""
    display(safe_bundle(bundle), metadata=metadata, raw=True)


class NotebookOutput:
    """Output that can be updated. Takes bundles, and widgets."""

    def __init__(self) -> None:
        self._handle = DisplayHandle()

    def display(self, obj: Any, **options: Any) -> None:
        self._handle.display(_safe(obj), **options)

    def update(self, obj: Any, **options: Any) -> None:
        self._handle.update(_safe(obj), **options)


def _safe(content: Any) -> Any:
    return safe_bundle(content) if isinstance(content, dict) else content
