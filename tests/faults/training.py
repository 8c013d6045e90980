"""Training for the fault tests: two ranks that need each other at every step.

A file ``fault.py`` in the home directory of its host is run by the rank there, once. With
``WITHOUT_TORCH`` in the environment ranks meet over plain sockets: importing torch takes 2 s of a
core per rank.
"""

import os
import socket
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from jupyter_mntrain import Recorder

STEP_S = 0.05
FAULT = Path.home() / "fault.py"
SIZE = 1_000_000  # more than one packet


def connect(rank):
    """A connection to the other rank."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1
    if rank == 0:
        return socket.create_server(place).accept()[0]
    while True:
        try:
            return socket.create_connection(place)
        except OSError:  # rank 0 is starting
            time.sleep(0.1)


with Recorder() as recorder:
    recorder.progress("waiting for the other ranks", 0)
    if "WITHOUT_TORCH" in os.environ:
        rank = int(os.environ["RANK"])
        connection, payload = connect(rank), bytearray(SIZE)

        def send(what, peer):
            with suppress(OSError):
                connection.sendall(what)

        def recv(what, peer):
            left = memoryview(what)
            while left:
                received = 0
                with suppress(OSError):
                    received = connection.recv_into(left)
                if not received:
                    time.sleep(600)  # of a lost peer it says nothing: only Gloo's words are known
                left = left[received:]
    else:
        import torch
        import torch.distributed as dist

        # Gloo's own default: what says nothing for half an hour is what this is about.
        dist.init_process_group("gloo", timeout=timedelta(minutes=30))
        rank, send, recv = dist.get_rank(), dist.send, dist.recv
        payload = torch.zeros(SIZE // 4)
    peer = 1 - rank
    recorder.start()
    for _ in range(100_000):
        time.sleep(STEP_S)
        if FAULT.exists():
            code = FAULT.read_text()
            FAULT.unlink()
            exec(code)
        if rank == 0:
            send(payload, peer)
            recv(payload, peer)
        else:
            recv(payload, peer)
            send(payload, peer)
        recorder.step(tokens=1)
        print("step of rank", os.environ["RANK"], flush=True)
