"""Path routes: a real agent listens for trials, tries its own way, and says what it saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import httpx
import msgspec
import pytest

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.paths import (
    PathEnd,
    PathHeard,
    PathListen,
    PathsAsked,
    PathTarget,
    PathTicket,
    PathTrial,
)
from tests import trusted
from tests.agent.live import LiveAgent, lease
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.agents

T = TypeVar("T")


def asked(agent: LiveAgent, path: str, body: msgspec.Struct, answer: type[T]) -> T:
    found = httpx.post(
        f"{agent.url}/v1/node/paths/{path}",
        verify=trusted.driver_context(),
        content=msgspec.json.encode(body),
        timeout=PATIENCE_S,
    )
    assert found.status_code == 200, found.text
    return msgspec.json.decode(found.content, type=answer)


def test_an_agent_listens_and_tries_without_a_load_beside_a_job(
    new_agent: Callable[..., LiveAgent],
) -> None:
    agent = new_agent()
    ticket = asked(agent, "listen", PathListen(address="127.0.0.1"), PathTicket)
    target = PathTarget(
        peer="hal", interface="lo", source="127.0.0.1", address="127.0.0.1", ticket=ticket
    )
    request = PathsAsked(targets=(target,))
    (trial,) = asked(agent, "try", request, tuple[PathTrial, ...])
    assert (trial.peer, trial.trouble, trial.flow) == ("hal", None, "works")
    assert trial.load is not None
    lease(agent, JobId("j-0000abcd"), 1, None)
    (trial,) = asked(agent, "try", request, tuple[PathTrial, ...])
    assert trial.load is None
    assert asked(agent, "end", PathEnd(token=ticket.token), PathHeard).half_open == ()
    assert asked(agent, "end", PathEnd(token=ticket.token), PathHeard) == PathHeard()
