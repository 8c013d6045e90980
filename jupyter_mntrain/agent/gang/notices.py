"""Notices: tell the user that a job ended or stalled, while nobody watches.

The participant that leads the watch sends, once for the end of an attempt and for each stall. Until
the job goes on, a stall is the same one, whatever its cause turns out to be.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec

from jupyter_mntrain.agent.gang.mail import SETTINGS, Mail, read_mail_settings
from jupyter_mntrain.agent.gang.notice import Channel, Notice
from jupyter_mntrain.agent.gang.webhook import Webhook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model.environment import MAIL_VARIABLE, WEBHOOK_VARIABLE, mail_addresses
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.rollup import job_state
from jupyter_mntrain.model.records.hidden import cleaned
from jupyter_mntrain.model.records.job import PartStatus

log = logging.getLogger("mntrain.agent")

TRIES: Final = 3
"""How often a notice is sent to a webhook or mail server that does not take it."""
AGAIN_AFTER_S: Final = 15.0
"""Delay between two tries."""

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
        key = self._key("ended")
        if not self.is_wanted or key in self._events:
            return
        verdict = judge(parts)
        state = job_state(part.state for part in parts)
        ended_s = max((part.ended_s for part in parts if part.ended_s), default=self._job.now_s())
        problem = verdict.problem if verdict and state == "failed" else None
        self._tell(key, self._notice("ended", state, problem, ended_s))

    def tell_stall(self, problem: Problem) -> None:
        """Tell that the job makes no progress, unless it has made none since that was told."""
        key = self._key("stalled")
        told_s = self._events.get(key)
        if self.is_wanted and (told_s is None or (problem.time_s or 0.0) > told_s):
            since_s = problem.time_s or self._job.now_s()
            self._tell(key, self._notice("stalled", "running", problem, since_s))

    def _key(self, event: Event) -> str:
        return f"{event} {self._job.record.attempt.number}"

    def _tell(self, key: str, notice: Notice) -> None:
        self._events[key] = self._job.now_s()
        task = asyncio.ensure_future(self._send_all(notice))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_all(self, notice: Notice) -> None:
        """Send over each channel; an agent that ends meanwhile is to send again when it is back."""
        await asyncio.gather(*(self._send(channel, notice) for channel in self._channels))
        with suppress(OSError):  # rather twice than never
            write_atomically(self._told, json.dumps(self._events).encode())

    @cached_property
    def _events(self) -> dict[str, float]:
        """When each was told last, Unix time; also by an agent before this one."""
        try:
            return msgspec.json.decode(self._told.read_bytes(), type=dict[str, float])
        except (OSError, msgspec.DecodeError):
            return {}

    def _notice(self, event: Event, state: str, problem: Problem | None, time_s: float) -> Notice:
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
            "time": datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds"),
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
