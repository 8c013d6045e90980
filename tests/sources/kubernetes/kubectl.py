"""Stand-in for kubectl, for ``port-forward`` alone: its words, its output, and its refusals.

Forwarding itself takes an API server with kubelets behind it. What is not shown here: a real one's.

``MNTRAIN_TEST_PODS``: a folder with a file per pod that holds the port of its agent here, and into
which each child writes its process id.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def forward(address: str, target: int, remote: str) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        print(f"Handling connection for {port}", flush=True)
        there, to = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, to), pump(there, writer))

    server = await asyncio.start_server(connect, address, 0)
    port = server.sockets[0].getsockname()[1]
    print(f"Forwarding from {address}:{port} -> {remote}", flush=True)
    await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser("kubectl", allow_abbrev=False)
    parser.add_argument("command", choices=["port-forward"])
    parser.add_argument("--address", default="localhost")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("pod")
    parser.add_argument("ports")
    told = parser.parse_args()
    kind, _, name = told.pod.partition("/")
    local, _, remote = told.ports.partition(":")
    assert (kind, local) == ("pod", "")
    pods = Path(os.environ["MNTRAIN_TEST_PODS"])
    if told.namespace == "closed":
        print(
            f'Error from server (Forbidden): pods "{name}" is forbidden: User "me" cannot create '
            f'resource "pods/portforward" in API group "" in the namespace "closed"',
            file=sys.stderr,
        )
        return 1
    if not (pods / name).exists():
        print(f'Error from server (NotFound): pods "{name}" not found', file=sys.stderr)
        return 1
    (pods / f"{name}.pid").write_text(str(os.getpid()))
    asyncio.run(forward(told.address, int((pods / name).read_text()), remote))
    return 0


if __name__ == "__main__":
    sys.exit(main())
