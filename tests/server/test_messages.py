"""What a page is sent: no text of others as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.server import updates as updates_module
from jupyter_mntrain.server.cluster_opening import ClusterOpening
from jupyter_mntrain.server.messages import page_json
from tests.hostile import HOSTILE, assert_safe, strings
from tests.server.test_updates import JOB, agents, new_opening, two_nodes
from tests.standin.elsewhere import Elsewhere
from tests.waiting import coming

__all__ = ["agents", "new_opening"]


@pytest.mark.anyio
async def test_no_message_to_a_page_has_text_of_others_as_it_is(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    both, connect = two_nodes(agents)
    for agent in both:
        agents.do(poison_jobs, agent)
    updates = await new_opening(connect).updates()
    await coming(lambda: updates.job(JOB) is not None and len(updates.nodes) == 2)
    told: list[bytes] = []
    updates.listen(told.append)
    updates.watch(JOB, lambda series: told.append(page_json(series)), "", 0)
    await coming(lambda: any(b"evil" in one for one in updates.greeting("", 0)))
    for message in (*updates.greeting("", 0), *told):
        for text in strings(json.loads(message)):
            assert_safe(text)
    assert b"evil\\\\x1b]52;c;" in b"".join(updates.greeting("", 0))


def poison_jobs(agent: Any) -> None:
    record = agent.jobs[JOB]
    part = msgspec.structs.replace(record.part, stop_reason=HOSTILE)
    spec = msgspec.structs.replace(record.spec, name=f"evil{HOSTILE}")
    agent.jobs[JOB] = msgspec.structs.replace(record, spec=spec, part=part, submitted_by=HOSTILE)


def test_whatever_is_sent_to_a_page_is_encoded_by_the_one_that_cleans() -> None:
    room = Path(updates_module.__file__).parent
    uses = {path.name for path in room.rglob("*.py") if "json.encode" in path.read_text().lower()}
    assert uses == {"messages.py"}
