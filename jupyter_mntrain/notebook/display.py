"""Putting things on a shell's screen, from any thread, in a notebook or a terminal."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

WIDTH = 150
"""Characters of a table in a notebook; wider ones scroll instead of folding."""


class Screen:
    """What a shell can show."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self.has_pictures = hasattr(shell, "kernel")
        """A kernel's frontend shows images; a terminal does not."""

    def line(self, text: str) -> None:
        print(text)  # noqa: T201

    def json(self, data: Any) -> None:
        print(json.dumps(data, indent=2))  # noqa: T201

    def show(self, renderable: Any) -> None:
        """A rich renderable, as text of fixed width: the same in every frontend, and searchable."""
        from rich.console import Console

        if renderable:
            Console(force_jupyter=False, width=WIDTH if self.has_pictures else None,
                    color_system=None if self.has_pictures else "auto").print(renderable)  # fmt: skip

    def new_output(self, text: str) -> Any:
        """A handle of an output under the running cell, to be updated later from any thread."""
        from IPython.display import DisplayHandle

        handle = DisplayHandle()
        handle.display({"text/plain": text}, raw=True)
        return handle

    def update(self, handle: Any, text: str, png: bytes | None) -> None:
        """Replace the output in place; what is there last stays in the saved notebook."""
        bundle: dict[str, str] = {"text/plain": text}
        if png is not None:
            bundle["image/png"] = b64encode(png).decode()
        handle.update(bundle, raw=True)
