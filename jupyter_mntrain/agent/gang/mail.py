"""Mail: sends notices by e-mail, through the mail server in ``mail.toml`` of the node.

The file is in the agent's state directory, mode 0600. Its password is sent only over TLS, and never
logged, recorded or shown. A job's own recipients are in ``MNTRAIN_MAIL``.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from jupyter_mntrain.agent.gang.notice import TIMEOUT_S, Channel, Notice
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

LONGEST_S = 60.0
"""Timeout of sending one e-mail, which takes about ten answers."""

SETTINGS = "mail.toml"

SUBJECT_CHARACTERS = 200

PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


class MailSettings(Record, frozen=True, forbid_unknown_fields=True):
    """A node's way to send mail.

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
    """The settings in an agent's state directory; ``None`` if it has none.

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
        what = str(error) if isinstance(error, msgspec.ValidationError) else "it is no TOML"
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
    """Sends to some addresses.

    Args:
        to: e-mail addresses.
    """

    def __init__(self, settings: MailSettings, to: tuple[str, ...]) -> None:
        self._settings = settings
        self._to = to
        self.where = f"the mail server {settings.host}"

    async def send(self, notice: Notice) -> str | None:
        """In a thread: the library blocks. Every step has a timeout, and all of them together."""
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
