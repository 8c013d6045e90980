"""Slot reader: its program is never left behind."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.cluster.discovery.discovery import FoundAgent
from jupyter_mntrain.cluster.discovery.slot_discovery import speak_for_the_gone
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.sources.slots import SlotSpoken
from tests.waiting import coming

pytestmark = pytest.mark.anyio

STUBBORN = """#!/bin/sh
trap '' TERM
echo $$ > {pid}
echo '{line}'
exec sleep 600
"""


async def test_a_program_that_does_not_end_is_killed_by_whoever_cancels_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, program = tmp_path / "pid", tmp_path / "python"
    line = msgspec.json.encode(SlotSpoken("slurm-0", NodeId("n-1"), "127.0.0.1:1")).decode()
    program.write_text(STUBBORN.format(pid=pid, line=line))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    found: list[FoundAgent] = []
    speaking = asyncio.create_task(speak_for_the_gone(tmp_path, found.append))
    await coming(lambda: found)
    place = Path("/proc") / pid.read_text().strip()
    assert place.exists()
    for _ in range(2):
        speaking.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert not place.exists(), "it has ended, and was waited for"
