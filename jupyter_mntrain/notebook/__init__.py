"""``%load_ext jupyter_mntrain``: magics, completion and live views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_KEY = "_mntrain_extension"
"""Where a shell keeps the extension: on itself, for there may be several shells in a process."""


def load(shell: InteractiveShell) -> None:
    """Add the extension to a shell. Loaded twice, it is there once."""
    from jupyter_mntrain.notebook.extension import Extension

    if not hasattr(shell, _KEY):
        extension = Extension(shell)
        extension.load()
        setattr(shell, _KEY, extension)


def unload(shell: InteractiveShell) -> None:
    """Take the extension away again. Jobs go on."""
    extension = getattr(shell, _KEY, None)
    if extension is not None:
        extension.unload()
        delattr(shell, _KEY)
