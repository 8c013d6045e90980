"""Mail: what reaches a mail server, what never does, and what others may read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_mntrain.agent.gang import notices
from jupyter_mntrain.agent.gang.notices import (
    SETTINGS,
    Mail,
    MailSettings,
    Notice,
    Notices,
    channels_of,
    read_mail_settings,
)
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model.environment import MAIL_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.plan.spec_check import check_spec
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.jobs import record
from tests.standin.mail_server import MailServer

PASSWORD = "open sesame"
CAUSE = Problem(
    kind=Kind.OUT_OF_MEMORY, cause="CUDA out\r\nBcc: all@example.org", node="node1", rank=Rank(0)
)
NOTICE = Notice("it failed", {"state": "failed", "fix": None, "text": "it failed"})


def settings_at(port: int, server: MailServer, **others: object) -> MailSettings:
    known: dict[str, object] = {
        "host": "127.0.0.1",
        "port": port,
        "sender": "node1@example.org",
        "user": "me",
        "password": PASSWORD,
        "ca_file": str(server.certificate),
    }
    return MailSettings(**(known | others))  # type: ignore[arg-type]


def write_settings(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / SETTINGS
    path.touch(mode=mode)
    path.write_text(text)
    return path


@pytest.mark.anyio
async def test_a_failure_reaches_both_the_jobs_and_the_nodes_recipients_once(tmp_path, caplog):
    server = MailServer(tmp_path)
    port = await server.start()
    write_settings(
        tmp_path,
        f'host = "127.0.0.1"\nport = {port}\nsender = "node1@example.org"\nuser = "me"\n'
        f'password = "{PASSWORD}"\nto = ["lab@example.org"]\nca_file = "{server.certificate}"\n',
    )
    environment = {MAIL_VARIABLE: "me@example.org, lab@example.org"}
    known = record(0, "failed", spec={"environment": environment, "name": "llama"})
    job = LocalJob(tmp_path / "job", known, GpuReader())
    job.directory.mkdir()
    with caplog.at_level("INFO", logger="mntrain.agent"):
        for _ in range(2):  # the second: of an agent that began again
            told = Notices(job, channels_of(job, tmp_path))
            told.tell_stall(CAUSE)
            while told._sending:
                await next(iter(told._sending))
    await server.close()
    (mail,) = server.taken
    assert server.recipients == ["me@example.org", "lab@example.org"]
    assert "llama" in mail["Subject"]
    assert mail["Bcc"] is None
    assert "node: node1" in mail.get_content().splitlines()
    assert "Bcc: all@example.org" not in mail.get_content().splitlines()
    assert server.was_encrypted
    assert server.logins == [server.password]
    assert PASSWORD not in caplog.text
    assert PASSWORD not in mail.as_string()


@pytest.mark.anyio
async def test_a_password_is_only_sent_to_whom_the_certificate_names(tmp_path):
    plain = MailServer(tmp_path, offers_tls=False)
    port = await plain.start()
    mail = Mail(settings_at(port, plain), ("me@example.org",))
    assert await mail.send(NOTICE) == "SMTPNotSupportedError"
    await plain.close()
    other = MailServer(tmp_path)
    port = await other.start()
    unknown = settings_at(port, other, ca_file=None)
    assert await Mail(unknown, ("me@example.org",)).send(NOTICE) == "SSLCertVerificationError"
    await other.close()
    assert (plain.logins, other.logins, plain.taken, other.taken) == ([], [], [], [])


@pytest.mark.anyio
async def test_a_refusal_is_tried_again_and_named_without_what_the_server_said(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(notices, "AGAIN_AFTER_S", 0.01)
    server = MailServer(tmp_path, busy=1)
    server.password = b"another"
    port = await server.start()
    job = LocalJob(tmp_path, record(0, "failed"), GpuReader())
    told = Notices(job, [Mail(settings_at(port, server), ("me@example.org",))])
    told.tell_stall(CAUSE)
    await asyncio.gather(*told._sending)
    await server.close()
    assert server.asked == notices.TRIES
    assert "SMTPAuthenticationError 535" in caplog.text
    assert PASSWORD not in caplog.text


def test_settings_that_others_may_read_are_refused(tmp_path):
    assert read_mail_settings(tmp_path) is None
    good = 'host = "mail"\nsender = "a@b"\n'
    path = write_settings(tmp_path, good)
    assert read_mail_settings(tmp_path) == MailSettings(host="mail", sender="a@b")
    path.chmod(0o640)
    with pytest.raises(SpecError):
        read_mail_settings(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        f'host = "mail"\nsender = "a@b"\npassword = "{PASSWORD}"\nsecurity = "none"\n',
        f'host = "mail"\nsender = "a@b"\npasword = "{PASSWORD}"\n',
        f'host = "mail"\nsender = "a@b"\nsecurity = "{PASSWORD}"\n',
        f'host = "mail"\nsender = "a@b"\npassword = "{PASSWORD}\n',
        f'sender = "a@b"\npassword = "{PASSWORD}"\n',
    ],
)
def test_wrong_settings_are_named_without_their_values(tmp_path, text):
    write_settings(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_mail_settings(tmp_path)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("text", ["nobody", "a@b c@d", "a@b\r\nBcc: x@y", "<a@b>", "a@"])
def test_a_job_with_no_address_in_its_variable_is_refused(text):
    spec = record(0, "running", spec={"environment": {MAIL_VARIABLE: text}}).spec
    with pytest.raises(SpecError):
        check_spec(spec)
