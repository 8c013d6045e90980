"""Names: looks up this host's name and the peers' addresses, as torch.distributed does.

Its store and Gloo ask for the name of every peer that connects. Where the name server does not
answer, that takes seconds each time.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.machine import NameLookup

PATIENCE_S = tunables.seconds("doctor.name_timeout_s")


def look_up_own_name() -> NameLookup:
    """The addresses of this machine's own name. Blocks for ``doctor.name_timeout_s`` at most."""
    name = socket.gethostname()
    return _all([(name, partial(_addresses, name))])[0]


def look_up_address(peers: Sequence[str]) -> tuple[NameLookup, ...]:
    """The name of each address, all at once; of what is no address, none."""
    return _all([(one, partial(_name, one)) for one in peers if _is_address(one)])


def _addresses(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def _name(address: str) -> tuple[str, ...]:
    return (socket.gethostbyaddr(address)[0],)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _all(asked: Sequence[tuple[str, Callable[[], tuple[str, ...]]]]) -> tuple[NameLookup, ...]:
    """Look all up at once. A look-up cannot be ended: one that hangs keeps its thread."""
    found: dict[int, NameLookup] = {}

    def look(at: int, what: str, ask: Callable[[], tuple[str, ...]]) -> None:
        begun = time.monotonic()
        try:
            answer = ask()
        except OSError:
            answer = ()
        found[at] = NameLookup(asked=what, found=answer, took_s=time.monotonic() - begun)

    threads = [
        threading.Thread(target=look, args=(at, *one), daemon=True) for at, one in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(
        found.get(at) or NameLookup(asked=what, took_s=PATIENCE_S, is_over=False)
        for at, (what, _) in enumerate(asked)
    )
