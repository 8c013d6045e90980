"""Slot reader: a program of this machine that speaks for agents of an allocation that are gone.

An agent's own code reads its directory, so a driver reads records, journals and logs as ever.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.discovery.discovery import FoundAgent
from jupyter_mntrain.model.sources.slots import SlotSpoken

log = logging.getLogger("mntrain.cluster")

_decoder = msgspec.json.Decoder(SlotSpoken)


async def speak_for_the_gone(directory: Path, on_found: Callable[[FoundAgent], None]) -> None:
    """Run the program until canceled; it ends with this process, too, however that ends.

    Args:
        on_found: called with each agent that it speaks for.
    """
    command = (sys.executable, "-P", "-m", "jupyter_mntrain.agent", "read", str(directory))
    # Its own session: Ctrl-C is for the command that reads.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        async for line in process.stdout:
            with suppress(msgspec.MsgspecError):
                told = _decoder.decode(line)
                on_found(
                    FoundAgent(addresses=(told.address,), node_id=told.node_id, name=told.slot)
                )
        log.warning("the records in %s cannot be read", directory)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    """Wait until it has ended, however often that is canceled; then it is killed."""
    ending = asyncio.ensure_future(process.wait())
    end = process.terminate
    while not ending.done():
        with suppress(ProcessLookupError):
            end()
        end = process.kill
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ending)
