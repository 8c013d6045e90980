"""WebSocket: a snapshot, then numbered changes without gaps."""

from __future__ import annotations

import base64
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jupyter_mntrain.model.ids import JobId
from tests.cluster.conftest import wait_for
from tests.server.conftest import FILE, SECRET, STEPS, Served, put_job, served_authority
from tests.server.live_server import BASE, TOKEN, Page

# Each starts Jupyter servers of its own.
pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NUMBERED = ("node", "heartbeat", "node-gone", "job", "job-gone", "status")

OpenPage = Callable[..., Awaitable[Page]]


@pytest.fixture
async def page(served: Served, anyio_backend: str) -> AsyncIterator[OpenPage]:
    made: list[Page] = []

    async def open_page(stream: str = "", since: int = 0) -> Page:
        one = await served.server.page(stream, since)
        made.append(one)
        return one

    yield open_page
    for one in made:
        await one.close()


async def deltas(page: Page, count: int) -> list[dict[str, Any]]:
    return [await page.next(*NUMBERED) for _ in range(count)]


async def test_a_snapshot_comes_first_and_numbers_follow_without_gaps(page: OpenPage) -> None:
    one = await page()
    snapshot = await one.next()
    assert snapshot["kind"] == "snapshot"
    assert [node["name"] for node in snapshot["nodes"]] == ["node1", "node2"]
    numbers = [message["seq"] for message in await deltas(one, 6)]
    assert numbers == list(range(snapshot["seq"] + 1, snapshot["seq"] + 7))


async def test_all_pages_are_told_the_same(page: OpenPage) -> None:
    one, two = await page(), await page()
    streams = {(await each.next("snapshot"))["stream"] for each in (one, two)}
    assert len(streams) == 1
    of_one = {message["seq"]: message for message in await deltas(one, 12)}
    of_two = {message["seq"]: message for message in await deltas(two, 12)}
    both = of_one.keys() & of_two.keys()
    assert both
    assert all(of_one[number] == of_two[number] for number in both)


async def test_a_page_that_comes_back_is_told_exactly_what_it_missed(page: OpenPage) -> None:
    witness, leaver = await page(), await page()
    snapshot = await leaver.next("snapshot")
    await leaver.close()
    await witness.next("snapshot")
    seen = {message["seq"]: message for message in await deltas(witness, 8)}
    back = await page(snapshot["stream"], snapshot["seq"])
    resumed = await back.next()
    assert resumed["kind"] == "resumed"
    assert resumed["seq"] > snapshot["seq"]
    missed = [await back.next() for _ in range(resumed["seq"] - snapshot["seq"] + 2)]
    numbers = [message["seq"] for message in missed]
    assert numbers == list(range(snapshot["seq"] + 1, snapshot["seq"] + 1 + len(missed)))
    assert all(seen[m["seq"]] == m for m in missed if m["seq"] in seen)
    assert seen.keys() & set(numbers)


@pytest.mark.parametrize(("stream", "since"), [("other", 3), ("", 0), ("OWN", 10**12)])
async def test_a_stream_or_number_nobody_knows_gets_everything(
    page: OpenPage, stream: str, since: int
) -> None:
    own = (await (await page()).next("snapshot"))["stream"]
    wrong = await page(stream.replace("OWN", own), since)
    assert (await wrong.next())["kind"] == "snapshot"


async def watched(page: Page, steps: int) -> list[dict[str, Any]]:
    """Messages of a watched job up to the one with its last step."""
    found = []
    while True:
        series = (await page.next("series"))["series"]
        found.append(series)
        if series.get("job", {}).get("step", [0])[-1:] == [float(steps)]:
            return found


async def test_a_watched_job_is_sent_whole_and_then_only_what_is_new(
    served: Served, page: OpenPage
) -> None:
    job_id = served.add_job()
    one = await page()
    await one.watch(job_id)
    first = await watched(one, STEPS)
    assert first[0].get("since", 0) == 0
    served.write(job_id, range(STEPS + 1, STEPS + 6))
    more = await watched(one, STEPS + 5)
    for before, after in zip([*first, *more][:-1], [*first, *more][1:], strict=True):
        # Before the first row nothing is numbered, and everything is sent again.
        assert after["stream"] == before["stream"]
        assert after.get("since", 0) == before["seq"]
    steps = [step for series in more for step in series["ranks"][0].get("step", [])]
    assert steps == [float(step) for step in range(STEPS + 1, STEPS + 6)]


async def test_a_watch_is_resumed_by_number(served: Served, page: OpenPage) -> None:
    job_id = served.add_job()
    one = await page()
    await one.watch(job_id)
    last = (await watched(one, STEPS))[-1]
    await one.close()
    served.write(job_id, range(STEPS + 1, STEPS + 3))
    two = await page()
    await two.watch(job_id, last["stream"], last["seq"])
    rows = await watched(two, STEPS + 2)
    assert rows[0]["since"] == last["seq"]
    assert sum(len(series["job"].get("step", [])) for series in rows) == 2
    await two.watch(job_id, "other", last["seq"])
    whole = (await two.next("series"))["series"]
    assert whole.get("since", 0) == 0
    assert len(whole["job"]["step"]) == STEPS + 2


async def test_nothing_is_sent_of_a_job_no_longer_watched(served: Served, page: OpenPage) -> None:
    left, other = served.add_job(), served.add_job()
    one = await page()
    await one.watch(left)
    await watched(one, STEPS)
    await one.say({"kind": "unwatch", "job_id": left})
    await one.watch(other)
    await watched(one, STEPS)
    for job_id in (left, other):
        served.write(job_id, range(STEPS + 1, STEPS + 2))
    assert {series["job_id"] for series in await watched(one, STEPS + 1)} == {other}
    # The other's rows went out in the same round or a later one: the left one's would be here.
    served.write(other, range(STEPS + 2, STEPS + 3))
    assert {series["job_id"] for series in await watched(one, STEPS + 2)} == {other}


@pytest.mark.parametrize("job", ["j-ffffffff", "nonsense", ""])
async def test_an_unknown_job_cannot_be_watched(page: OpenPage, job: str) -> None:
    one = await page()
    await one.watch(job)
    problem = await one.next("problem")
    assert problem["problem"]["kind"] == "no-such-job"
    assert problem["job_id"] == job


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"kind": "dance"}',
        '{"kind": "watch"}',
        '{"kind": "watch", "job_id": "j-00000001", "since": "now"}',
        b"\xff\x00",
        "x" * 5000,
    ],
)
async def test_garbage_is_answered_and_not_fatal(page: OpenPage, text: str | bytes) -> None:
    one = await page()
    await one.say(text)
    assert (await one.next("problem"))["problem"]["kind"] == "bad-request"
    assert (await one.next(*NUMBERED))["seq"]


async def test_a_changed_job_is_told_and_holds_no_secrets(served: Served, page: OpenPage) -> None:
    one = await page()
    snapshot = await one.next("snapshot")
    job_id = served.add_job()
    told = [snapshot]
    while not (told[-1]["kind"] == "job" and told[-1]["job"]["job_id"] == job_id):
        told.append(await one.next())
    await one.watch(job_id)
    told += await watched(one, STEPS)
    assert SECRET not in str(told)
    assert FILE not in str(told)
    served.server.ask("POST", f"/jobs/{job_id}/stop")
    while (message := await one.next("job"))["job"]["job_id"] != job_id or (
        message["job"]["state"] != "canceled"
    ):
        pass


async def test_a_page_that_does_not_read_stops_nobody(served: Served, page: OpenPage) -> None:
    job_id = served.add_job(steps=400)
    metrics = f"/jobs/{job_id}/metrics"
    wait_for(lambda: len(served.server.get(metrics).get("job", {}).get("step", ())) == 400)
    other = await page()
    snapshot = await other.next("snapshot")
    with contextlib.closing(deaf_page(served.server.port)) as deaf:
        watch = f'{{"kind": "watch", "job_id": "{job_id}"}}'.encode()
        # Each is answered with the whole series: far more than the kernel keeps.
        deaf.sendall(frame(watch) * 300)
        numbers = [message["seq"] for message in await deltas(other, 10)]
        assert numbers == list(range(snapshot["seq"] + 1, snapshot["seq"] + 11))
        assert served.server.get("/status")
    numbers = [message["seq"] for message in await deltas(other, 4)]
    assert numbers == list(range(snapshot["seq"] + 11, snapshot["seq"] + 15))


def deaf_page(port: int) -> socket.socket:
    """A page that asks and never reads."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", port))
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    head = f"GET {BASE}mntrain/v1/events?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    deaf.sendall(f"{head}Sec-WebSocket-Key: {key}\r\n\r\n".encode())
    return deaf


def frame(text: bytes) -> bytes:
    """A text frame, masked with zeros."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def test_a_forgotten_job_is_told(served: Served, page: OpenPage) -> None:
    one = await page()
    await one.next("snapshot")
    extra = served.elsewhere.agent(
        "node9", cluster=served.server.cluster, authority=served_authority()
    )
    served.do(put_job, extra, 0, JobId("j-00000099"))
    key = served.server.ask("POST", "/nodes", {"address": extra.where}).json()["key"]
    while (await one.next("node"))["node"]["name"] != "node9":
        pass
    served.do(extra.die)
    assert served.server.ask("DELETE", f"/nodes/{key}").status_code == 204
    assert (await one.next("node-gone"))["key"] == key
