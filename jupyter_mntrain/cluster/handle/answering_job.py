"""Answering job: talks with the model of a chat job, and says where a serving job answers."""

from __future__ import annotations

from abc import abstractmethod

from jupyter_mntrain.cluster.handle.logged_job import LoggedJob
from jupyter_mntrain.cluster.launch.chat import Chat
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.text.serving_address import SERVER, address_in


class AnsweringJob(LoggedJob):
    """The part of a job's handle for jobs of ``mntrain chat`` and ``mntrain serve``."""

    @abstractmethod
    def summary(self) -> JobSummary:
        """The job's figures."""

    def chat(self) -> Chat:
        """Talk with the model that it has loaded: of a job that ``mntrain chat`` has started.

        Raises:
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()
        return Chat(self._driver, self.id, self.view)

    def serving_url(self, timeout_s: float | None = None) -> str | None:
        """Where a job of ``mntrain serve`` answers OpenAI clients, once it does.

        Of 127.0.0.1, only programs on its node reach it.

        Returns:
            ``None`` if it has ended, serves nothing, or still loads after ``timeout_s`` seconds.
        """
        if self.view().spec.entry[:2] != ("-m", SERVER):
            return None

        def has_ended() -> bool:
            return self.view().state in TERMINAL

        changes = self._driver.live.changes
        changes.wait_until(lambda: has_ended() or self._told_url() is not None, timeout_s)
        return None if has_ended() else self._told_url()

    def _told_url(self) -> str | None:
        head = self.view().attempt.head
        told = [one.progress.what for one in self.summary().ranks if one.progress is not None]
        found = (address_in(what, head.address) for what in told)
        return next((one for one in found if one is not None), None)
