"""The head's own part in a gang start: it is in the audit log like any other start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_mntrain.agent.gang.restarter import OwnNode
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.trust.audit import Audit

STARTED = SimpleNamespace(record="started")
REQUEST: Any = SimpleNamespace(job_id="j-00000001", attempt=SimpleNamespace(number=2))


def own_node(path: Path, *, before: int, start: Any) -> Any:
    node: Any = SimpleNamespace(
        node_id="ab" * 16,
        audit=Audit(path),
        jobs=SimpleNamespace(start=start, stop=lambda *_: "stopped"),
    )
    record = SimpleNamespace(attempt=SimpleNamespace(number=before), restart="planned")
    job: Any = SimpleNamespace(record=record)
    return OwnNode(node, job)


@pytest.mark.parametrize(("before", "why"), [(0, "queue"), (1, "failure")])
def test_who_starts_it_is_said(tmp_path: Path, before: int, why: str) -> None:
    path = tmp_path / "audit.log"
    node = own_node(path, before=before, start=lambda _: STARTED)
    assert asyncio.run(node.start(REQUEST)) == "started"
    line = json.loads(path.read_text())
    assert (line["what"], line["job"], line["attempt"]) == ("start", "j-00000001", "2")
    assert (line["who"], line["after"]) == (f"node {'ab' * 16}", why)
    assert line["outcome"] == "done"


def test_a_refusal_is_said_too(tmp_path: Path) -> None:
    def refuse(_: object) -> None:
        raise RefusedError("GPU 0 is taken", fix="wait")

    path = tmp_path / "audit.log"
    with pytest.raises(RefusedError):
        asyncio.run(own_node(path, before=1, start=refuse).start(REQUEST))
    assert json.loads(path.read_text())["outcome"].startswith("refused: ")
