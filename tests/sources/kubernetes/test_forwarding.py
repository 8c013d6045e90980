"""Forwards to pods, with a stand-in for kubectl: see there what that cannot show."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.kubernetes.forwarding import PodForwards
from tests.sources.kubernetes import kubectl
from tests.waiting import coming, until


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of pods that the stand-in knows; it is first on the path."""
    folder, programs = tmp_path / "pods", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    program = programs / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("MNTRAIN_TEST_PODS", str(folder))
    return folder


@asynccontextmanager
async def agent(pods: Path, name: str) -> AsyncIterator[None]:
    """Something in a pod that says the pod's name."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        (pods / name).write_text(str(server.sockets[0].getsockname()[1]))
        yield


async def said_at(address: str) -> str:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


def child(pods: Path, name: str) -> psutil.Process:
    return psutil.Process(int((pods / f"{name}.pid").read_text()))


def test_each_slot_has_a_port_that_follows_its_pod_and_ends_with_it(pods: Path) -> None:
    async def story() -> None:
        forwards = PodForwards()
        async with agent(pods, "a"), agent(pods, "b"), agent(pods, "c"):
            first = await forwards.addresses({"k-0": "a", "k-1": "b"}, "ml")
            assert [await said_at(first[slot]) for slot in ("k-0", "k-1")] == ["a", "b"]
            assert await forwards.addresses({"k-0": "a", "k-1": "b"}, "ml") == first
            before = child(pods, "a")
            moved = await forwards.addresses({"k-0": "c", "k-1": "b"}, "ml")
            assert moved["k-1"] == first["k-1"]
            assert await said_at(moved["k-0"]) == "c"
            await coming(lambda: not before.is_running(), "that of the former pod ends")
            lost = child(pods, "b")
            lost.kill()
            await coming(lambda: not lost.is_running(), "it is killed")
            again = first
            while again["k-1"] == first["k-1"]:
                await asyncio.sleep(0.01)
                again = await forwards.addresses({"k-0": "c", "k-1": "b"}, "ml")
            assert await said_at(again["k-1"]) == "b"
            left = child(pods, "b")
            # One whose pod has just ended is none.
            told = await forwards.addresses({"k-0": "gone", "k-1": "b"}, "ml")
            assert told == {"k-1": again["k-1"]}
            await forwards.close()
            await coming(lambda: not left.is_running(), "none is left")

    asyncio.run(story())


@pytest.mark.wording
def test_who_may_not_forward_is_told_what_to_ask_for(
    pods: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RefusedError) as raised:
        asyncio.run(PodForwards().addresses({"k-0": "a"}, "closed"))
    assert raised.value.kind is Kind.SCHEDULER_REFUSED
    assert "pods/portforward" in raised.value.fix
    assert "\n" not in str(raised.value)
    monkeypatch.setenv("PATH", str(pods))
    with pytest.raises(RefusedError) as raised:
        asyncio.run(PodForwards().addresses({"k-0": "a"}, "ml"))
    assert raised.value.kind is Kind.NO_SCHEDULER
    assert asyncio.run(PodForwards().addresses({}, "ml")) == {}, "nobody needs it yet"


KILLED = """
import asyncio
from jupyter_mntrain.sources.kubernetes.forwarding import PodForwards

async def main():
    forwards = PodForwards()
    await forwards.addresses({"k-0": "a"}, "ml")
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_forwards_end_with_the_driver_even_if_it_is_killed(pods: Path) -> None:
    (pods / "a").write_text("9")
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"up\n"
        own = child(pods, "a")
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    until(lambda: not own.is_running() or own.status() == psutil.STATUS_ZOMBIE, "it ends")
