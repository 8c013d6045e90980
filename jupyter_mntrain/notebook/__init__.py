"""``%load_ext jupyter_mntrain``: magics, completion and live views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_KEY = "_mntrain_extension"
"""The shell's attribute that holds the extension: a process may have several shells."""


def load(shell: InteractiveShell) -> None:
    """Add the extension to a shell; a second call does nothing."""
    from jupyter_mntrain.notebook.extension import Extension

    if not hasattr(shell, _KEY):
        extension = Extension(shell)
        extension.load()
        setattr(shell, _KEY, extension)


def unload(shell: InteractiveShell) -> None:
    """Remove the extension. Jobs keep running."""
    extension = getattr(shell, _KEY, None)
    if extension is not None:
        extension.unload()
        delattr(shell, _KEY)
