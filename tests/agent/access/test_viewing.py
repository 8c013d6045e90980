"""Viewing: a secret in every field of every record, and every answer that a read-only driver gets.

Both are taken from the types: a field or a route that somebody adds is in the table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import httpx
import msgspec
import pytest

from jupyter_mntrain.agent.access.callers import around, for_viewer, lines_for_viewer, masked_log
from jupyter_mntrain.agent.http import MAY
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.model.api import Route, StreamMessage, TrustNews
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.lifecycle.listing import JobPage
from jupyter_mntrain.model.records.checkpoint import NodeCheckpoints
from jupyter_mntrain.model.records.hidden import hidden_values
from jupyter_mntrain.model.records.job import (
    SESSION,
    SHOWS_VIEWERS,
    Attempt,
    JobRecord,
    JobSpec,
    Participant,
    PartStatus,
    Placement,
    Restart,
)
from jupyter_mntrain.model.records.metrics import JournalLine, RankSaved, RankStep, Sample
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.text.log_parts import LogTimes
from jupyter_mntrain.trust.certificates import Role, Subject
from tests import trusted
from tests.agent.access.planting import Planter, records_in
from tests.agent.live import LiveAgent, free_port

ANSWERS: dict[tuple[Route, str], tuple[Any, ...]] = {
    (Route.NODE, "GET"): (NodeInfo,),
    (Route.STREAM, "GET"): get_args(StreamMessage),
    (Route.HISTORY, "GET"): (NodeHistory,),
    (Route.JOBS, "GET"): (JobPage,),
    (Route.JOB, "GET"): (JobRecord,),
    (Route.SPEC, "GET"): (JobSpec,),
    (Route.DELETION, "GET"): (JobDeletion,),
    (Route.JOURNAL, "GET"): (JournalLine, *get_args(Sample)),
    (Route.SAMPLES, "GET"): (NodeSamples,),
    (Route.LOG, "GET"): (),
    (Route.LOG_TIMES, "GET"): (LogTimes,),
    (Route.CHECKPOINTS, "GET"): (NodeCheckpoints,),
    (Route.TRUST, "GET"): (),
    (Route.TRUST, "PUT"): (),
}
"""What each request of a read-only driver is answered with; a refusal is a Problem."""

RECORDS = sorted(
    {
        record
        for kinds in ANSWERS.values()
        for kind in (*kinds, Problem)
        for record in records_in(kind)
    },
    key=lambda kind: kind.__name__,
)


def test_what_every_request_is_answered_with_is_known() -> None:
    viewers = {request for request, roles in MAY.items() if "viewer" in roles}
    assert set(ANSWERS) == viewers, "name in ANSWERS what the new route answers"


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_no_field_of_a_record_shows_a_secret(kind: type) -> None:
    planter = Planter()
    record = planter.record(kind)
    before, seen = (
        msgspec.json.encode(one).decode() for one in (record, for_viewer(record, planter.places))
    )
    assert all(secret in before for secret in planter.places), "each was planted"
    leaked = [place for secret, place in planter.places.items() if secret in seen]
    assert not leaked, f"not masked: {', '.join(leaked)}"
    assert type(for_viewer(record)) is kind


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_without_a_secret_a_record_is_answered_as_it_is(kind: type) -> None:
    record = Planter().record(kind)
    if any(one in (JobSpec, JobRecord) for one in records_in(kind)):
        return  # a spec loses its files
    assert for_viewer(record, ["another-secret"]) is record


def test_a_secret_that_is_also_a_state_or_an_id_breaks_nothing() -> None:
    """Only texts are masked: what the answer is put together by stays."""
    node = NodeId("ab" * 16)
    spec = JobSpec(
        entry=("a.py",),
        participants=(Participant(node="node1"),),
        environment={"A_TOKEN": "running", "B_TOKEN": "abab"},
    )
    part = PartStatus(node_id=node, node="node1", state="running", stop_reason="it was running")
    attempt = Attempt(1, (), "10.0.0.1", 29500, 0.0)
    record = JobRecord(job_id=JobId("j-0000abab"), spec=spec, attempt=attempt, part=part)
    seen = for_viewer(record)
    assert (seen.job_id, seen.part.node_id, seen.part.state) == ("j-0000abab", node, "running")
    assert seen.part.stop_reason == "it was *******"
    assert seen.spec.environment == {"A_TOKEN": "***", "B_TOKEN": "***"}
    assert msgspec.json.decode(msgspec.json.encode(seen), type=JobRecord) == seen


def test_a_session_keeps_back_what_its_ranks_print() -> None:
    """From read-only drivers, unless its owner shows them."""
    problem = Problem(Kind.NODE_LOST, "it is gone", detail="the last lines of the log")
    part = PartStatus(node_id=NodeId("ab" * 16), node="node1", state="failed", problem=problem)
    attempt = Attempt(1, (), "10.0.0.1", 29500, 0.0)
    for entry, is_hidden in (
        (("-m", SESSION), True),
        (("-m", SESSION, SHOWS_VIEWERS), False),
        (("a.py", SHOWS_VIEWERS), False),
    ):
        spec = JobSpec(entry=entry, participants=())
        record = JobRecord(job_id=JobId("j-0000abab"), spec=spec, attempt=attempt, part=part)
        seen = for_viewer((record, problem))
        assert seen[0].part.problem == (
            msgspec.structs.replace(problem, detail="") if is_hidden else problem
        )
        assert seen[1] is problem, "of another job"
        line = JournalLine(1, 1, RankSaved(1.0, Rank(0), 1, problem=problem))
        block = msgspec.json.encode(line) + b"\n"
        shown = lines_for_viewer(block, (), hides_output=spec.hides_output)
        assert (b"last lines" in shown) != is_hidden


def test_certificates_are_passed_on_as_they_are() -> None:
    news = TrustNews(revocations="-----BEGIN X509 CRL-----\npassword=x1y2z3w4\n")
    assert for_viewer(news, ["X509"]) is news


def test_a_secret_is_hidden_however_it_is_written() -> None:
    """As JSON, Python and addresses spell it, line by line, and if an argument said it."""
    key = "-----begin-----\nfirst line of a key\nsecond line of it"
    aws = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"
    spec = JobSpec(
        entry=("a.py", "--aws-secret", aws, "--password=hunter2"),
        participants=(),
        environment={"DB_PASSWORD": 'sü"ß&1', "SSH_KEY": key, "DEBUG": "true", "MODE": "slow"},
        from_environment=("DEBUG", "MODE"),
    )
    values = hidden_values(spec)
    for shown in (aws, "hunter2", 'sü"ß&1', 's\\u00fc\\"\\u00df&1', "s%C3%BC%22%C3%9F%261", "slow"):
        log = masked_log(f"got {shown} here".encode(), values)
        assert log == b"got " + b"*" * len(shown.encode()) + b" here", shown
    assert b"second line" not in masked_log(b"1 first line of a key\n2 second line of it\n", values)
    assert masked_log(b"true", values) == b"true", "a setting is no secret that texts give away"
    named = msgspec.structs.replace(spec, participants=(Participant(node="slow"),))
    assert masked_log(b"on node slow", hidden_values(named)) == b"on node slow"


def test_lines_of_a_journal_without_text_stay_byte_by_byte() -> None:
    step = b'{"kind":"step","time_s":1.0,"rank":0,"step":1,"step_s":2.0}'
    line = b'{"seq":1,"attempt":1,  "body":' + step + b"}\n"
    assert lines_for_viewer(line, ["step"]) == line
    unknown = b'{"seq":2,"attempt":1,"body":{"kind":"of-tomorrow","said":"hunter2"}}\n'
    assert lines_for_viewer(line + unknown + b"damaged hunter2\n", ["x"]) == line


def test_a_masked_part_of_a_log_is_as_long_as_it_was() -> None:
    secret = "hf_" + "aBcDeFgHiJ" * 3
    content = f"é süß-und-geheim {secret} ende".encode()
    masked = masked_log(content, ["süß-und-geheim"])
    assert len(masked) == len(content)
    assert masked.startswith("é ".encode() + b"*")
    assert masked.endswith(b"* ende")
    begin, length = around(100, 10)
    assert (begin, length >= 110) == (0, True)
    begin, length = around(1_000_000, 10)
    assert begin < 1_000_000 - 4096
    assert begin + length > 1_000_010 + 4096


class Planted(NamedTuple):
    agent: LiveAgent
    ended: JobId
    waiting: JobId
    places: dict[str, str]
    """The field of each secret, by the secret."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """An agent that finds two jobs on its disk: one that has ended, and one that waits."""
    address = "127.88.1.2"
    agent = LiveAgent("node1", address, free_port(address), tmp_path_factory.mktemp("node1"))
    planter, ended, waiting = Planter(), JobId("j-0000000e"), JobId("j-0000000a")
    try:
        agent.start()
        node_id = agent.info().node_id
        agent.kill()
        _plant(agent.state / "jobs" / ended, planter, ended, node_id, number=1)
        _plant(agent.state / "jobs" / waiting, planter, waiting, node_id, number=0)
        agent.start()
        yield Planted(agent, ended, waiting, planter.places)
    finally:
        agent.end()


def _plant(folder: Path, planter: Planter, job_id: JobId, node_id: NodeId, *, number: int) -> None:
    """Write a job's record, journal and log, with a secret in all that may hold one."""
    now_s, first = time.time(), len(planter.places)
    attempt = folder / f"attempt-{number}"
    attempt.mkdir(parents=True, mode=0o700)
    state = "failed" if number else "pending"
    place = planter.record(Placement, node_id=node_id, node_rank=0, first_rank=Rank(0))
    restart = planter.record(Restart, number=1, at_s=now_s + 86_400, lost_since_s=None)
    members = (Participant(node="node1"),)  # the name of a node is no secret
    spec = planter.record(
        JobSpec, origin=None, max_restarts=1, version=1, entry=("a.py",), participants=members
    )
    record = planter.record(
        JobRecord,
        job_id=job_id,
        spec=spec,
        attempt=planter.record(
            Attempt, number=number, placements=(place,), submitted_s=now_s - 60, earlier=None
        ),
        part=planter.record(
            PartStatus,
            node_id=node_id,
            state=state,
            started_s=now_s - 50,
            ended_s=now_s - 1 if number else None,
        ),
        members=(node_id,),
        restart=None if number else restart,
        is_over=bool(number),
    )
    lines = [
        planter.record(JournalLine, seq=seq, attempt=number, body=planter.record(kind), offset=1)
        for seq, kind in enumerate(get_args(Sample), 1)
    ]
    # Enough steps that they are answered downsampled, too.
    lines.append(JournalLine(len(lines) + 1, number, RankStep(now_s, Rank(1), 1, 1.0)))
    secrets = [*planter.places][first:]
    environment = {f"PASSWORD_{n}": secret for n, secret in enumerate(secrets)}
    spec = msgspec.structs.replace(spec, environment={**spec.environment, **environment})
    record = msgspec.structs.replace(record, spec=spec)
    (folder / "record.json").write_bytes(msgspec.json.encode(record))
    journal = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / "journal.ndjson").write_bytes(journal)
    (attempt / "log").write_text("".join(f"a rank printed {secret}\n" for secret in secrets))


def _answers(planted: Planted, role: Role, path: Path) -> dict[tuple[Route, str], str]:
    """Every answer of a role to what read-only drivers may ask, of both jobs."""
    subject = Subject(role=role, name="ab" * 16 if role == "node" else "kim")
    made = trusted.make_credentials(path, subject)
    found = {}
    with httpx.Client(verify=made.unnamed_client, timeout=20) as client:
        for route, method in ANSWERS:
            if method != "GET":
                continue
            for job in (planted.ended, planted.waiting):
                asked = planted.agent.url + route.format(job_id=job)
                asked += "?begin=0&end=9" if route is Route.SAMPLES else ""
                with client.stream("GET", asked) as answer:
                    lines = answer.iter_lines()
                    said = next(lines) if route is Route.STREAM else "\n".join(lines)
                    found[route, job] = f"{answer.status_code} {said}"
    return found


TEXTS = {Route.STREAM, Route.JOBS, Route.JOB, Route.SPEC, Route.JOURNAL, Route.SAMPLES, Route.LOG}
TEXTS |= {Route.HISTORY}
"""Routes whose answers have texts of jobs."""


def test_no_route_shows_a_secret_to_a_role_that_may_only_watch(
    planted: Planted, tmp_path: Path
) -> None:
    by_driver = _answers(planted, "driver", tmp_path / "driver")
    for route in TEXTS:
        said = "".join(answer for (one, _), answer in by_driver.items() if one is route)
        assert any(secret in said for secret in planted.places), f"{route} has none: plant one"
    seen = {role: _answers(planted, role, tmp_path / role) for role in ("viewer", "node")}
    leaked = [
        f"{role} {route} of {job}: {place}"
        for role, answers in seen.items()
        for (route, job), answer in answers.items()
        for secret, place in planted.places.items()
        if secret in answer
    ]
    assert not leaked, "\n".join(leaked)
    assert all(said.startswith("200") for said in seen["viewer"].values())


def test_a_search_does_not_confirm_a_guess(planted: Planted, tmp_path: Path) -> None:
    record = planted.agent.record(planted.ended)
    found = {}
    for role in ("driver", "viewer"):
        made = trusted.make_credentials(tmp_path / role, Subject(role=role, name="kim"))
        with httpx.Client(verify=made.unnamed_client, timeout=20) as client:
            for search in (record.spec.name, planted.ended):
                asked = f"{planted.agent.url}/v1/jobs?search={search}"
                page = msgspec.json.decode(client.get(asked).content, type=JobPage)
                found[role, search] = len(page.records)
    assert list(found.values()) == [1, 1, 0, 1]


def test_a_refusal_shows_no_secret(planted: Planted, tmp_path: Path) -> None:
    secret = next(iter(planted.places))
    made = trusted.make_credentials(tmp_path, Subject(role="viewer", name="kim"))
    with httpx.Client(verify=made.unnamed_client, timeout=20) as client:
        answer = client.get(f"{planted.agent.url}/v1/jobs?after={secret}")
        # Refused before anybody has looked at the path, or at who asks.
        unknown = client.request("BREW", f"{planted.agent.url}/v1/jobs/{planted.ended}")
    problem = msgspec.json.decode(answer.content, type=Problem)
    assert (answer.status_code, problem.kind is Kind.BROKEN) == (400, False)
    assert secret not in answer.text
    assert (unknown.status_code, unknown.json()["kind"]) == (405, Kind.NO_SUCH_ROUTE)
    assert "Traceback" not in planted.agent.log()
