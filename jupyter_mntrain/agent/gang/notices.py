"""Notices: tell the user, who may not be watching, that a job ended or stalled.

The participant that leads the watch sends, once for the end of an attempt and for each stall. Until
the job goes on, a stall is the same one, whatever its cause turns out to be.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import MAIL_VARIABLE, WEBHOOK_VARIABLE, mail_addresses
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.rollup import job_state
from jupyter_mntrain.model.records.hidden import cleaned
from jupyter_mntrain.model.records.job import PartStatus

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

log = logging.getLogger("mntrain.agent")


# Notice: what is told of a job, and the ways to tell it.


TIMEOUT_S = 10.0
"""Timeout for connecting to a job's webhook or a mail server, and for each of its answers."""


class Notice(Record, frozen=True):
    """One event of a job.

    Args:
        line: one sentence for people.
        body: the same for programs.
    """

    line: str
    body: dict[str, object]


class Channel(ABC):
    """A way to notify somebody. ``where`` names it in the log, without secrets."""

    where: str

    @abstractmethod
    async def send(self, notice: Notice) -> str | None:
        """Send once, within a bounded time. Returns why it failed, without secrets, or nothing."""


# Webhook: an address of the user's that takes notices as JSON.
#
# It is the value of ``MNTRAIN_WEBHOOK`` in the job's environment, so it is kept and hidden as other
# secrets are. It is never logged: whoever has it can write there.


class Webhook(Channel):
    def __init__(self, url: str) -> None:
        self._url = url
        self.where = f"the webhook at {urlsplit(url).hostname}"

    async def send(self, notice: Notice) -> str | None:
        client = SimpleAsyncHTTPClient(force_instance=True)
        try:
            request = HTTPRequest(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=json.dumps(notice.body).encode(),
                connect_timeout=TIMEOUT_S,
                request_timeout=TIMEOUT_S,
                follow_redirects=False,
            )
            answer = await client.fetch(request, raise_error=False)
        except (OSError, ValueError) as error:
            return type(error).__name__
        except HTTPClientError as error:  # it hung, or closed the connection without an answer
            return error.message or type(error).__name__
        finally:
            client.close()
        return None if answer.code < 300 else f"status {answer.code}"


# Mail: sends notices by e-mail, through the mail server in ``mail.toml`` of the node.
#
# The file is in the agent's state directory, mode 0600. Its password is sent only over TLS, and
# never logged, recorded or shown. A job's own recipients are in ``MNTRAIN_MAIL``.


LONGEST_S = 60.0
"""Timeout of sending one e-mail, which takes about ten answers."""

SETTINGS = "mail.toml"

SUBJECT_CHARACTERS = 200

PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


class MailSettings(Record, frozen=True, forbid_unknown_fields=True):
    """How a node sends mail.

    Args:
        sender: address that mail comes from.
        to: addresses that get the notices of all jobs that this node leads.
        port: default: that of ``security`` in :data:`PORTS`.
        ca_file: certificates to trust instead of the system's.
    """

    host: str
    sender: str
    to: tuple[str, ...] = ()
    port: int | None = None
    security: str = "starttls"
    user: str = ""
    password: str = ""
    ca_file: str | None = None

    @property
    def reached_port(self) -> int:
        return self.port or PORTS[self.security]


def read_mail_settings(directory: Path) -> MailSettings | None:
    """Read the mail settings in an agent's state directory; ``None`` if there are none.

    Raises:
        SpecError: others may read the file, or it is wrong. The message holds none of its values.
    """
    path = directory / SETTINGS
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", fix="correct it") from error
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        found = os.fstat(file.fileno())
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise SpecError(
                f"other users can read {path}, or it belongs to one", fix=f"chmod 600 {path}"
            )
        content = file.read()
    try:
        settings = msgspec.toml.decode(content, type=MailSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # A validation error names the field, not its value; a syntax error may quote the line.
        what = str(error) if isinstance(error, msgspec.ValidationError) else "it is not TOML"
        raise SpecError(f"{path}: {what}", fix="see docs/notices.md") from None
    if settings.security not in PORTS:
        names = ", ".join(PORTS)
        raise SpecError(f"{path}: its security is unknown", fix=f"use one of {names}")
    if settings.password and settings.security == "none":
        raise SpecError(
            f"{path} sends its password without TLS",
            fix='use security = "starttls" or "tls", or leave the password out',
        )
    return settings


class Mail(Channel):
    """Sends mail to some addresses.

    Args:
        to: e-mail addresses.
    """

    def __init__(self, settings: MailSettings, to: tuple[str, ...]) -> None:
        self._settings = settings
        self._to = to
        self.where = f"the mail server {settings.host}"

    async def send(self, notice: Notice) -> str | None:
        """Send in a thread, as the library blocks. Each step has a timeout, and so has it all."""
        import smtplib  # memory of an agent that sends no mail

        work = asyncio.to_thread(_deliver, self._settings, self._message(notice))
        try:
            await asyncio.wait_for(work, LONGEST_S)
        except smtplib.SMTPResponseException as error:  # its words may quote the user's name
            return f"{type(error).__name__} {error.smtp_code}"
        except (OSError, ValueError, smtplib.SMTPException) as error:
            return type(error).__name__
        return None

    def _message(self, notice: Notice) -> EmailMessage:
        from email.message import EmailMessage
        from email.utils import formatdate, make_msgid

        message = EmailMessage()
        message["Subject"] = f"[mntrain] {' '.join(notice.line.split())}"[:SUBJECT_CHARACTERS]
        message["From"] = self._settings.sender
        message["To"] = ", ".join(self._to)
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(domain="mntrain.invalid")
        message["Auto-Submitted"] = "auto-generated"
        shown = [
            f"{name}: {' '.join(str(value).split())}"
            for name, value in notice.body.items()
            if value not in (None, "") and value != notice.line
        ]
        message.set_content("\n".join([notice.line, "", *shown, ""]))
        return message


def _deliver(settings: MailSettings, message: EmailMessage) -> None:
    import smtplib

    where = (settings.host, settings.reached_port)
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.security == "tls":
        opened: smtplib.SMTP = smtplib.SMTP_SSL(*where, timeout=TIMEOUT_S, context=context)
    else:
        opened = smtplib.SMTP(*where, timeout=TIMEOUT_S)
    with opened as server:
        if settings.security == "starttls":
            server.starttls(context=context)  # raises if the server does not offer it
        if settings.user:
            server.login(settings.user, settings.password)
        server.send_message(message)


TRIES: Final = 3
"""How often a notice is sent to a webhook or mail server that does not take it."""
AGAIN_AFTER_S: Final = 15.0
"""Delay between two tries."""

Event = Literal["ended", "stalled"]


class Notices:
    """Notifications about one job on this node. Does nothing if nobody wants any."""

    def __init__(self, job: LocalJob, channels: Sequence[Channel]) -> None:
        self._job = job
        self._channels = channels
        self._told = job.directory / "told.json"
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants to be notified."""
        return bool(self._channels)

    def tell_end(self, parts: Sequence[PartStatus]) -> None:
        """Notify that all parts have ended, with the cause if one failed."""
        key = self._key("ended")
        if not self.is_wanted or key in self._events:
            return
        verdict = judge(parts)
        state = job_state(part.state for part in parts)
        ended_s = max((part.ended_s for part in parts if part.ended_s), default=self._job.now_s())
        problem = verdict.problem if verdict and state == "failed" else None
        self._tell(key, self._notice("ended", state, problem, ended_s))

    def tell_stall(self, problem: Problem) -> None:
        """Notify that the job has stalled, unless it has made no progress since the last notice."""
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
        """Send over every channel. If the agent ends during this, the next one sends again."""
        await asyncio.gather(*(self._send(channel, notice) for channel in self._channels))
        with suppress(OSError):  # rather twice than never
            write_atomically(self._told, json.dumps(self._events).encode())

    @cached_property
    def _events(self) -> dict[str, float]:
        """Unix time of the last notice of each kind, including those that an earlier agent sent."""
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
        """Send over one channel, with a few retries."""
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
    """Return the channels that the job and this node are configured to notify.

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
