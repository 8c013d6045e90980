"""Screen: shows a job while it runs, and messages before a verb's result."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from jupyter_mntrain.model.text.foreign import shown

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress
    from jupyter_mntrain.model.records.job import JobView


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job that does not exist yet.

    Args:
        said: what it waits for, for people; ``data``: for programs.
        job: once it is there.
    """

    said: RenderableType = ""
    data: Any = None
    job: Job | None = None


@dataclass(slots=True)
class CellTarget:
    """Where a notebook's cells without a magic of ours run.

    Args:
        session: id of the session's job; empty: in the notebook's own kernel.
    """

    session: str = ""


class Screen(ABC):
    """A terminal or a notebook."""

    cell_target: CellTarget | None = None
    """``None`` where there are no cells."""
    variables: dict[str, Any] | None = None
    """Of the notebook; ``None`` where there are none."""

    in_background: bool = False
    """Whether :meth:`show` keeps updating after it returns."""
    shows_pictures: bool = False
    """Whether a picture is drawn where text is; elsewhere it opens a window, or is lost."""
    has_variables: bool = False
    """Whether a job can be stored in a variable."""
    keeps_last: bool = False
    """Whether a message replaces the one before; then outdated ones are repeated."""

    @abstractmethod
    def say(self, renderable: RenderableType) -> None:
        """Print a message now."""

    @abstractmethod
    def show(self, job: Job) -> None:
        """Show the job and return at once."""

    @abstractmethod
    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        """Show the job until it has ended or the time is up. ``KeyboardInterrupt`` propagates."""

    def await_job(self, first: Awaited, look: Callable[[], Awaited]) -> None:  # noqa: B027
        """Show what a job waits for, then the job; return at once.

        Only where :attr:`in_background`.

        Args:
            first: what is known now.
            look: what is known later; raises :class:`RefusedError` if there will be no job.
        """

    def starting(
        self,
        cluster: str,  # noqa: ARG002
    ) -> AbstractContextManager[Callable[[JobView], object]]:
        """Context manager of a launch, for what names the job before its nodes are asked to start
        it: whoever is killed from then on leaves that. Shows nothing by default.

        Args:
            cluster: its name.
        """
        return nullcontext(bool)

    def write(self, text: str) -> None:
        """Write text of a session's cell as it is: safe to show, maybe part of a line."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def display(
        self,
        bundle: Mapping[str, Any],
        metadata: Mapping[str, Any],  # noqa: ARG002
        identity: str,  # noqa: ARG002
        *,
        is_update: bool,
    ) -> None:
        """Show what a session's cell shows; where there are no pictures, its text.

        Args:
            bundle: by MIME type.
            identity: of a display that is updated later; empty otherwise.
            is_update: takes the place of the display with this identity.
        """
        if not is_update:
            self.say(shown(str(bundle.get("text/plain", ""))))

    def clear(self) -> None:  # noqa: B027
        """Erase what the running cell has shown, before the next output; where that can be done."""

    def ask(self, prompt: str) -> str:
        """Ask for a line.

        Raises:
            EOFError: there is nobody to answer.
        """
        return input(prompt)

    def open_panel(self, panel: Any) -> str | None:  # noqa: ARG002
        """Show a submit panel, a :class:`jupyter_mntrain.verbs.panel.panel.Panel`.

        Returns:
            ``None``, or why only text can be shown here.
        """
        return "The clickable panel needs a notebook; this is its text form."

    def progress(self) -> AbstractContextManager[Progress]:
        """Return a context manager that shows the progress of slow work; by default nothing."""
        # Imported here because it loads the whole launch package.
        from jupyter_mntrain.launch.progress import SILENT

        return nullcontext(SILENT)
