"""Fuzzing: malformed requests cause no 500, no crash, no leak, and disturb no job."""

from __future__ import annotations

import contextlib
import json
import socket
from http.client import HTTPException, HTTPResponse
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.agent.live import LiveAgent, free_port, launch
from tests.searches import count
from tests.waiting import until

pytestmark = pytest.mark.slow

REQUESTS = count(short=2_000, long=20_000)
LOOKS = 20
GROWTH_LIMIT_BYTES = 10 << 20
HALF_OPEN = 120
"""Connections that begin a request and never end it."""

SCRIPT = "import time\nprint('ready', flush=True)\ntime.sleep(600)"

ODD = st.sampled_from(
    [
        "..",
        "%2e%2e",
        "%00",
        "j-",
        "j-00000000",
        "J-0000000A",
        "-1",
        "1e9",
        "٣",
        "𝟙",
        "\u202e",
        "a" * 300,
    ]
)
SEGMENT = ODD | st.text(max_size=12)
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, -(2**63), 10**400, 1e308])
QUERIES = st.sampled_from(["limit", "after", "search", "run", "begins"])
PATHS = st.one_of(
    st.sampled_from(
        [
            "/v1/node", "/v1/jobs", "/v1/leases", "/v1/probe/listen", "/", "/v1", "//v1/node",
            "/v1/jobs/j-00000000/log?offset=-99999999999999999999&limit=1e3",
            "/v1/jobs/j-00000000/journal?since=99999999999999999999999&follow=0",
            "/v1/jobs/j-00000000/samples?points=0&begin=-1&end=1e9&by=%00&rank=-1",
            "/v1/port/99999?interface=../../lo",
            "/v1/jobs?limit=0", "/v1/jobs?limit=1e99", "/v1/jobs?after=1.5 j-1", "/v1/jobs?limit=٣",
        ]
    ),
    st.builds("/v1/jobs/{}".format, SEGMENT),
    st.builds("/v1/jobs/{}/{}".format, SEGMENT, SEGMENT),
    st.builds("/v1/jobs/{}/attempts/{}".format, SEGMENT, SEGMENT),
    st.builds("/v1/leases/{}/{}".format, SEGMENT, SEGMENT),
    st.sampled_from(["/v1/blobs", f"/v1/blobs/{'0' * 64}?size=4&offset=0&key=a"]),
    st.builds("/v1/blobs/{}?size={}&offset={}&key={}".format, SEGMENT, SEGMENT, SEGMENT, SEGMENT),
    st.builds(f"/v1/blobs/{'a' * 64}?size={{}}&offset={{}}&key=a".format, NUMBERS, NUMBERS),
    st.builds("/v1/port/{}?interface={}".format, SEGMENT, SEGMENT),
    st.builds("/v1/jobs?{}={}".format, QUERIES, SEGMENT | NUMBERS.map(str)),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["job_id", "attempt", "ranks", "gpus", "interface", "hold_port", "expires_in_s", "spec",
     "reason", "sizes", "grace_s", "address", "port", "token", "seconds", "submitted_by"]
)  # fmt: skip
LIKELY = st.dictionaries(FIELDS, JSON | ODD, max_size=6)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def cut(body: bytes, share: float) -> bytes:
    return body[: int(len(body) * share)]


LARGE = {
    "nested lists": b"[" * 50_000,
    "nested objects": b'{"a":' * 20_000,
    "no text": b'"\xff\xfe"',
    "zeros": b"\x00" * 5000,
}
"""By name: failures are printed."""

BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=200),
    LIKELY.map(encoded),
    JSON.map(encoded),
    st.builds(cut, LIKELY.map(encoded), st.floats(0, 1)),
    st.sampled_from(sorted(LARGE)),
)


class Rude:
    """Sends bytes as they are; libraries would refuse half of them."""

    def __init__(self, agent: LiveAgent) -> None:
        self._agent = agent
        self._connection: socket.socket | None = None

    def ask(self, method: str, path: str, body: bytes) -> int:
        """The status; 0 if the other side hung up."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._connection is None:
            self._connection = self._agent.connect()
        try:
            self._connection.sendall(head.encode(errors="surrogatepass") + body)
            answer = HTTPResponse(self._connection, method=method)
            answer.begin()
            self.text = answer.read()
        except (HTTPException, OSError):  # TLS has errors of its own
            self.close()
            return 0
        if answer.will_close:
            self.close()
        return answer.status

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"])


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory):
    address = "127.97.0.1"
    state = tmp_path_factory.mktemp("fuzzed")
    made = LiveAgent("fuzzed", address, free_port(address), state, "fuzz").start()
    yield made
    made.end()


@pytest.mark.timeout(1200)  # 20,000 take two minutes, most of them hypothesis's own
def test_requests_that_nobody_should_send(agent: LiveAgent) -> None:
    assert agent.process is not None
    process = psutil.Process(agent.process.pid)
    job_id = launch([agent], SCRIPT)
    until(lambda: agent.record(job_id).part.state == "running", "the job to run")
    pid = agent.record(job_id).part.ranks[0].pid
    statuses: dict[int, int] = {}
    sizes: list[int] = []
    client = Rude(agent)

    @settings(
        max_examples=REQUESTS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(METHODS, PATHS, BODIES)
    def ask(method: str, path: str, body: bytes | str) -> None:
        body = LARGE[body] if isinstance(body, str) else body
        status = client.ask(method, path, body)
        statuses[status] = statuses.get(status, 0) + 1
        assert status < 500, (method, path, body[:200], client.text)
        if sum(statuses.values()) % (REQUESTS // LOOKS) == 0:
            sizes.append(process.memory_info().rss)

    with contextlib.ExitStack() as half_open:
        for number in range(HALF_OPEN // 2):
            # Strangers, who never say who they are; and members who never finish.
            stranger = socket.create_connection((agent.address, agent.port), timeout=20)
            half_open.callback(stranger.close)
            connection = agent.connect()
            half_open.callback(connection.close)
            begun = b"PUT /v1/jobs/j-00000000/attempts/1 HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(begun + b"Content-Length: 100\r\n\r\n{" * (number % 2))
        ask()
    client.close()

    print(f"{sum(statuses.values())} requests: {dict(sorted(statuses.items()))}")
    assert sum(statuses.values()) >= REQUESTS
    assert agent.process.poll() is None
    # The first ones fill caches of fixed size.
    assert sizes[-1] - sizes[LOOKS // 4] < GROWTH_LIMIT_BYTES, sizes
    record = agent.record(job_id)
    assert (record.part.state, record.part.ranks[0].pid) == ("running", pid)
    assert "Traceback" not in agent.log()
