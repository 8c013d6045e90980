"""Notices: tell the user that a job ended or stalled, while nobody watches.

The participant that leads the watch sends, once for each event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from jupyter_mntrain.agent.gang.mail import SETTINGS, Mail, read_mail_settings
from jupyter_mntrain.agent.gang.notice import Channel, Notice
from jupyter_mntrain.agent.gang.webhook import Webhook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import MAIL_VARIABLE, WEBHOOK_VARIABLE, mail_addresses
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.rollup import job_state
from jupyter_mntrain.model.records.hidden import cleaned
from jupyter_mntrain.model.records.job import PartStatus

log = logging.getLogger("mntrain.agent")

TRIES: Final = tunables.count("notices.tries")
AGAIN_AFTER_S: Final = tunables.seconds("notices.again_after_s")

Event = Literal["ended", "stalled"]


class Notices:
    """Of one job on this node. Does nothing if nobody wants to be told."""

    def __init__(self, job: LocalJob, channels: Sequence[Channel]) -> None:
        self._job = job
        self._channels = channels
        self._told = job.directory / "told.json"
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether there is somebody to tell."""
        return bool(self._channels)

    def tell_end(self, parts: Sequence[PartStatus]) -> None:
        """Tell that all parts have ended, and the cause if one failed."""
        verdict = judge(parts)
        state = job_state(part.state for part in parts)
        self._tell("ended", state, verdict.problem if verdict and state == "failed" else None)

    def tell_stall(self, problem: Problem) -> None:
        """Tell that the attempt makes no progress."""
        self._tell("stalled", "running", problem)

    def _tell(self, event: Event, state: str, problem: Problem | None) -> None:
        key = f"{event} {self._job.record.attempt.number}"
        if not self.is_wanted or key in self._events:
            return
        self._events.add(key)
        task = asyncio.ensure_future(self._send_all(self._notice(event, state, problem)))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_all(self, notice: Notice) -> None:
        """Send over each channel; an agent that ends meanwhile is to send again when it is back."""
        await asyncio.gather(*(self._send(channel, notice) for channel in self._channels))
        with suppress(OSError):  # rather twice than never
            write_atomically(self._told, json.dumps(sorted(self._events)).encode())

    @cached_property
    def _events(self) -> set[str]:
        """Told already, also by an agent before this one."""
        try:
            told = json.loads(self._told.read_bytes())
        except (OSError, ValueError):
            return set()
        return {str(one) for one in told} if isinstance(told, list) else set()

    def _notice(self, event: Event, state: str, problem: Problem | None) -> Notice:
        record = self._job.record
        name = record.spec.name
        line = f"{name} ({record.job_id}) {'has stalled' if event == 'stalled' else state}"
        line = line if problem is None else f"{line}: {problem}"
        steps = [rank.step for rank in record.part.ranks if rank.step is not None]
        body: dict[str, object] = {
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
        # A cause may quote what a script printed, and many may read a channel.
        return cleaned(Notice(line, body), self._job.secrets)

    async def _send(self, channel: Channel, notice: Notice) -> None:
        """Send, a few times if need be."""
        job_id = self._job.record.job_id
        for number in range(1, TRIES + 1):
            cause = await channel.send(notice)
            if cause is None:
                log.info("job %s: told %s", job_id, channel.where)
                return
            log.warning(
                "job %s: %s did not take the notice (try %d of %d): %s",
                *(job_id, channel.where, number, TRIES, cause),
            )
            await asyncio.sleep(AGAIN_AFTER_S * (number < TRIES))


def channels_of(job: LocalJob, state: Path) -> tuple[Channel, ...]:
    """Whom the job, and this node, want to be told.

    Args:
        state: state directory of the agent, which may have settings for mail.
    """
    environment = job.record.spec.environment
    found: list[Channel] = []
    if url := environment.get(WEBHOOK_VARIABLE):
        found.append(Webhook(url))
    own = mail_addresses(environment.get(MAIL_VARIABLE, ""))
    try:
        settings = read_mail_settings(state)
    except SpecError as error:
        log.warning("no mail is sent: %s", error)
        return tuple(found)
    if settings is None:
        if own:
            log.warning("job %s wants mail, and this node has no %s", job.record.job_id, SETTINGS)
        return tuple(found)
    if to := tuple(dict.fromkeys((*own, *settings.to))):
        found.append(Mail(settings, to))
    return tuple(found)
