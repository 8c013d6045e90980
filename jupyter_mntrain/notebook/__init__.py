"""``%mntrain`` and ``%%mntrain`` in a kernel: thin faces over the verbs, and the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_mntrain.notebook.extension import Extension

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_ATTRIBUTE = "_mntrain_extension"
"""On the shell: its lifetime is the extension's, and two shells never share one."""


def load(shell: InteractiveShell) -> None:
    """Register magics and completion and start looking for nodes. A second load does nothing."""
    if getattr(shell, _ATTRIBUTE, None) is None:
        extension = Extension(shell)
        setattr(shell, _ATTRIBUTE, extension)
        extension.load()


def unload(shell: InteractiveShell) -> None:
    """Take everything back that :func:`load` did; jobs go on."""
    extension: Extension | None = getattr(shell, _ATTRIBUTE, None)
    if extension is not None:
        delattr(shell, _ATTRIBUTE)
        extension.unload()
