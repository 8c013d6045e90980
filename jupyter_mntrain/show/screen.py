"""Screen: where verbs show a job while it runs, and the lines before their outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rich.console import RenderableType

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress


class Screen(ABC):
    """Where a job is shown while it runs, and where lines go before the outcome is there."""

    in_background: bool = False
    """Whether :meth:`show` goes on updating by itself after it has returned."""
    has_variables: bool = False
    """Whether a job can be kept under a name."""

    @abstractmethod
    def say(self, renderable: RenderableType) -> None:
        """Show something now, for people."""

    @abstractmethod
    def show(self, job: Job) -> None:
        """Show the job and return at once."""

    @abstractmethod
    def follow(self, job: Job) -> None:
        """Show the job until it has ended. A ``KeyboardInterrupt`` passes through."""

    def open_panel(self, panel: object) -> str | None:  # noqa: ARG002
        """Show a submit panel, a :class:`jupyter_mntrain.verbs.panel.panel.Panel`.

        Returns:
            ``None``, or why only text can be shown here.
        """
        return "The clickable panel needs a notebook; this is its text form."

    def progress(self) -> AbstractContextManager[Progress]:
        """Where to report how far work is that may take longer than a second.

        Entered before the work and left after it. Draws nothing, unless a screen says otherwise.
        """
        # Here, because it loads all of the cluster's room; whoever works has loaded that.
        from jupyter_mntrain.launch.progress import SILENT

        return nullcontext(SILENT)
