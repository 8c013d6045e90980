"""Fixes of ports that are taken: the one at which ranks meet, and one that a script opens."""

from __future__ import annotations

import socket

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.faults.fixes.ground import Ground, Run, Trial, edit

BINDS = """
import sys
from torch.distributed import TCPStore
port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
"""
OWN_PORT = """
import os, socket, time
own = socket.create_server(("127.0.0.1", 47123)); time.sleep(5)
"""


def _taken(ground: Ground) -> Run:
    taken = ground.taken.enter_context(socket.create_server(("127.0.0.1", 0)))
    return Run(script=BINDS, arguments=("--port", str(taken.getsockname()[1])))


def _without_port(_: Ground, run: Run, __: Problem) -> Run:
    return run.with_(arguments=())


PORTS = (
    Trial(Kind.PORT_TAKEN, _taken, "without --port", _without_port),
    edit(
        Run(script=OWN_PORT, ranks=2),
        "a port of its own",
        "47123",
        'int(os.environ["RANK"]) + 47123',
        Kind.OWN_PORT_TAKEN,
    ),
)
