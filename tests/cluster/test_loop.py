"""Loop thread: the thread behind the synchronous API."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from jupyter_mntrain.cluster.loop import LoopThread, end_tasks
from tests.wording import wording


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread("test")
    yield made
    made.close()


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_results_and_errors_come_back(loop: LoopThread) -> None:
    assert loop.run(answer(7)) == 7

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run(fail())


def test_many_threads_at_once(loop: LoopThread) -> None:
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(loop.run(answer(n)))) for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(20))


def test_it_works_where_a_loop_is_running_as_in_a_notebook(loop: LoopThread) -> None:
    async def cell() -> int:
        return loop.run(answer(3))

    assert asyncio.run(cell()) == 3


def test_waiting_for_itself_is_an_error_and_not_a_hang(loop: LoopThread) -> None:
    async def inside() -> None:
        loop.run(answer(1))

    with pytest.raises(RuntimeError, match=wording("own loop")):
        loop.run(inside())


def test_closing_ends_what_runs_and_closing_again_does_nothing(loop: LoopThread) -> None:
    ended = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def wait() -> None:
        with pytest.raises(RuntimeError, match=wording("closed")):
            loop.run(forever())

    waiter = threading.Thread(target=wait)
    waiter.start()
    loop.run(answer(1))
    loop.close()
    waiter.join(10)
    assert ended.is_set()
    assert not waiter.is_alive()
    loop.close()
    with pytest.raises(RuntimeError, match=wording("closed")):
        loop.run(answer(1))


def test_ctrl_c_cancels_the_work_and_waits_for_it_to_clean_up(loop: LoopThread) -> None:
    trail: list[str] = []
    main = threading.get_ident()

    async def work() -> None:
        trail.append("began")
        # To the thread that waits, as the terminal does.
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            trail.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert trail == ["began", "cleaned up"]


def test_a_task_that_swallows_its_cancellation_is_asked_again(loop: LoopThread) -> None:
    swallowed: list[int] = []

    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                # As a timeout does that strikes in the same moment (asyncio.wait_for, 3.11).
                swallowed.append(1)
        await asyncio.sleep(30)

    async def work() -> bool:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end_tasks([task])
        return task.done()

    assert loop.run(work())


EXIT = """
from jupyter_mntrain.cluster import Cluster, StaticDiscovery
cluster = Cluster(addresses=["127.0.0.1:9"], discovery=StaticDiscovery())
cluster.nodes()
print("left open")
"""


def test_a_process_that_forgets_to_close_ends_cleanly_and_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXIT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "left open\n"), done.stderr
    assert done.stderr == ""


def test_what_iterates_may_be_dropped_after_the_loop_was_closed(loop: LoopThread) -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    items = loop.iterate(numbers())
    assert next(items) == 1
    loop.close()
    items.close()  # as when a notebook forgets it
