"""Chat: a driver's conversation with a job that keeps a model loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

import msgspec

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError, error_of
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.text.conversation import ChatAnswer, ChatMessage, ChatRequest, Sampling

ALIVE_EVERY_S = 5.0
"""Interval at which `chat` tells its job that it is still there: well before the job
gives up."""
LOST_AFTER_S = 20.0
"""How long `chat` goes on asking a node that does not answer."""


class Chat:
    """Asks questions of a chat job, which ends when the chat is closed.

    While it is open, it also keeps the job alive between questions: a job that nobody has contacted
    for half a minute ends.

    Args:
        view: the job as it is now.
        stopwatch: seconds from an arbitrary start.
    """

    def __init__(
        self,
        driver: DriverSession,
        job_id: JobId,
        view: Callable[[], JobView],
        *,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver, self._job_id, self._view = driver, job_id, view
        self._stopwatch = stopwatch
        self._newest = ChatRequest(attempt=view().attempt.number)
        self._alive = driver.loop.run(self._begin())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> ChatAnswer | None:
        """Describe the model once it is loaded; ``None`` after a moment if it is not.

        Raises:
            MntrainError: why the job has ended.
            NodeError: its node does not answer.
        """
        return self._ask()

    def answers(
        self, messages: tuple[ChatMessage, ...], sampling: Sampling, *, is_completion: bool
    ) -> Iterator[ChatAnswer]:
        """Ask, and yield the answer piece by piece; the last piece may carry a problem.

        Raises:
            MntrainError: why the job has ended.
            NodeError: its node does not answer.
        """
        self._newest = ChatRequest(
            attempt=self._newest.attempt,
            turn=self._newest.turn + 1,
            messages=messages,
            sampling=sampling,
            is_completion=is_completion,
        )
        while True:
            piece = self._ask()
            if piece is None:
                continue
            received = self._newest.received + len(piece.text)
            self._newest = msgspec.structs.replace(self._newest, received=received)
            yield piece
            if piece.is_over:
                return

    def close(self) -> None:
        """End the job. A job that cannot be reached ends by itself."""
        self._driver.loop.run(self._end())

    def _ask(self) -> ChatAnswer | None:
        until_s = self._stopwatch() + LOST_AFTER_S
        while True:
            view = self._view()
            if view.state in TERMINAL:
                raise _why_over(view)
            try:
                return self._driver.loop.run(self._send(self._newest))
            except NodeError:
                if self._stopwatch() > until_s:
                    raise
                time.sleep(_PAUSE_S)
            except RefusedError:
                # It has just ended: the view will say why.
                if not self._driver.live.changes.wait_until(self._is_over, LOST_AFTER_S):
                    raise

    def _is_over(self) -> bool:
        return self._view().state in TERMINAL

    async def _send(self, request: ChatRequest) -> ChatAnswer | None:
        client = self._driver.live.client_of(self._view().attempt.head)
        return (await client.chat(self._job_id, request)).answer

    async def _begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            with suppress(MntrainError):  # who asks learns of it
                await self._send(self._newest)

    async def _end(self) -> None:
        self._alive.cancel()
        with suppress(MntrainError):  # over already, or it ends by itself
            await self._send(msgspec.structs.replace(self._newest, is_last=True))


def _why_over(view: JobView) -> MntrainError:
    if view.problem is not None:
        return error_of(view.problem)
    return RefusedError(
        f"the chat {view.job_id} has ended: it is {view.state}",
        fix=f"begin another one, or see mntrain logs {view.job_id}",
    )


_PAUSE_S = 0.5
