from __future__ import annotations

import asyncio

import pytest

from jupyter_mntrain.agent.listeners import BACKLOG, Listeners
from jupyter_mntrain.model.api import Goodbye

pytestmark = pytest.mark.anyio
MESSAGE = Goodbye(reason="test")


async def test_everybody_hears_what_comes_after_they_began_to_listen():
    listeners = Listeners()
    listeners.publish(MESSAGE)
    with listeners.listen() as one, listeners.listen() as two:
        listeners.publish(MESSAGE)
        assert (await one.get(), await two.get()) == (MESSAGE, MESSAGE)
        assert one.empty()
        assert not listeners.is_empty
    assert listeners.is_empty


async def test_who_does_not_keep_up_is_let_go_and_buffered_for_no_further():
    listeners = Listeners()
    with listeners.listen() as slow:
        for _ in range(3 * BACKLOG):
            listeners.publish(MESSAGE)
        assert slow.qsize() == BACKLOG + 1
        assert listeners.is_empty
        told = [await slow.get() for _ in range(BACKLOG + 1)]
        assert told[-1] is None


async def test_closing_waits_until_the_last_word_was_taken():
    listeners, is_listening = Listeners(), asyncio.Event()
    told = []

    async def listen():
        with listeners.listen() as messages:
            is_listening.set()
            while (message := await messages.get()) is not None:
                told.append(message)

    listener = asyncio.ensure_future(listen())
    await is_listening.wait()
    listeners.publish(MESSAGE)
    await listeners.close()
    assert told == [MESSAGE]
    await listener


async def test_closing_does_not_wait_for_who_takes_nothing(monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.agent.listeners.FAREWELL_S", 0.05)
    listeners = Listeners()
    with listeners.listen():
        await asyncio.wait_for(listeners.close(), 30)
