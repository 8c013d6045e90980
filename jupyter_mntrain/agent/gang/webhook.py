"""Webhook: tells an address of the user's that a job ended or stalled, while nobody watches.

The address is the value of ``MNTRAIN_WEBHOOK`` in the job's environment, so it is kept and hidden
as other secrets are. The participant that leads the watch sends, once for each event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final, Literal
from urllib.parse import urlsplit

from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import WEBHOOK_VARIABLE
from jupyter_mntrain.model.failure.hypotheses import own
from jupyter_mntrain.model.failure.judge import part_to_blame
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.rollup import job_state
from jupyter_mntrain.model.records.job import PartStatus

log = logging.getLogger("mntrain.agent")

TRIES: Final = tunables.count("notices.tries")
TIMEOUT_S: Final = tunables.seconds("notices.timeout_s")
AGAIN_AFTER_S: Final = tunables.seconds("notices.again_after_s")

Event = Literal["ended", "stalled"]


class Webhook:
    """Of one job on this node. Does nothing for a job without an address."""

    def __init__(self, job: LocalJob) -> None:
        self._job = job
        self._url = job.record.spec.environment.get(WEBHOOK_VARIABLE, "")
        self._told = job.directory / "told.json"
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether the job has an address."""
        return bool(self._url)

    def tell_end(self, parts: Sequence[PartStatus]) -> None:
        """Tell that all parts have ended, and the cause if one failed."""
        guilty = part_to_blame([part for part in parts if part.state == "failed"])
        state = job_state(part.state for part in parts)
        self._tell("ended", state, own(guilty) if guilty is not None else None)

    def tell_stall(self, problem: Problem) -> None:
        """Tell that the attempt makes no progress."""
        self._tell("stalled", "running", problem)

    def _tell(self, event: Event, state: str, problem: Problem | None) -> None:
        key = f"{event} {self._job.record.attempt.number}"
        if not self.is_wanted or key in self._events:
            return
        self._events.add(key)
        with suppress(OSError):  # rather twice than never
            write_atomically(self._told, json.dumps(sorted(self._events)).encode())
        body = json.dumps(self._body(event, state, problem)).encode()
        task = asyncio.ensure_future(self._send(body))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    @cached_property
    def _events(self) -> set[str]:
        """Told already, also by an agent before this one."""
        try:
            told = json.loads(self._told.read_bytes())
        except (OSError, ValueError):
            return set()
        return {str(one) for one in told} if isinstance(told, list) else set()

    def _body(self, event: Event, state: str, problem: Problem | None) -> dict[str, object]:
        record = self._job.record
        name = record.spec.name
        line = f"{name} ({record.job_id}) {'has stalled' if event == 'stalled' else state}"
        line = line if problem is None else f"{line}: {problem}"
        steps = [rank.step for rank in record.part.ranks if rank.step is not None]
        return {
            # Slack, Mattermost and Teams show "text", Discord "content".
            "text": line,
            "content": line,
            "event": event,
            "job": record.job_id,
            "name": name,
            "run": record.run,
            "attempt": record.attempt.number,
            "state": state,
            "step": min(steps, default=None),
            "node": problem.node if problem else None,
            "rank": problem.rank if problem else None,
            "kind": problem.kind if problem else None,
            "cause": problem.cause if problem else None,
            "fix": problem.fix if problem else None,
        }

    async def _send(self, body: bytes) -> None:
        """Send, a few times if need be. The address is never logged: whoever has it can write."""
        host = urlsplit(self._url).hostname
        job_id = self._job.record.job_id
        client = SimpleAsyncHTTPClient(force_instance=True)
        try:
            for number in range(1, TRIES + 1):
                cause = await self._post(client, body)
                if cause is None:
                    log.info("job %s: told the webhook at %s", job_id, host)
                    return
                log.warning(
                    "job %s: the webhook at %s did not take it (try %d of %d): %s",
                    *(job_id, host, number, TRIES, cause),
                )
                await asyncio.sleep(AGAIN_AFTER_S * (number < TRIES))
        finally:
            client.close()

    async def _post(self, client: SimpleAsyncHTTPClient, body: bytes) -> str | None:
        """Post once; returns the cause of a failure."""
        try:
            request = HTTPRequest(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=body,
                connect_timeout=TIMEOUT_S,
                request_timeout=TIMEOUT_S,
                follow_redirects=False,
            )
            answer = await client.fetch(request, raise_error=False)
        except (OSError, ValueError) as error:
            return type(error).__name__
        return None if answer.code < 300 else f"status {answer.code}"
