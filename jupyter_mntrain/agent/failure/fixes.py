"""Fixes: what to do about a failed attempt, by kind."""

from __future__ import annotations

from jupyter_mntrain.model.failure.kinds import Kind

_AGAIN = "launch it again, or use --restarts to do that automatically"

FIXES: dict[Kind, str] = {
    Kind.GPU_OUT_OF_MEMORY: "use more and smaller microbatches, or fewer layers on that node "
    "(pipeline.split)",
    Kind.OUT_OF_MEMORY: "use fewer processes there or a smaller batch; 'nodes' shows its memory",
    Kind.KILLED: "see dmesg and journalctl on that node for what sent the signal",
    Kind.TERMINATED: "see journalctl on that node, and check for a scheduler's time limit",
    Kind.CRASHED: "compare the versions under 'nodes': a package built for another torch can "
    "cause this",
    Kind.DISK_FULL: "free some space on that node",
    Kind.NO_MODULE: "install {what} on that node",
    Kind.NO_FILE: "put it on every node at the same path, or send a small file with --file",
    Kind.NO_PERMISSION: "give the agent's user permission to read and write it",
    Kind.NO_INTERFACE: "choose another interface for that node: --member NODE:N:IFACE",
    Kind.NO_GPU_KERNEL: "install a torch that is built for the GPUs of that node",
    Kind.OLD_DRIVER: "update the NVIDIA driver of that node, or install an older torch",
    Kind.PORT_TAKEN: "another program uses it: launch again without --port, or with --restarts",
    Kind.KEEPER_LOST: _AGAIN,
    Kind.MACHINE_RESTARTED: _AGAIN,
    Kind.CONNECTION_LOST: "read the other nodes' logs: the rank that closed the connection "
    "failed first",
    Kind.EXCEPTION: "see the whole traceback with 'logs', and correct the script or its data",
    Kind.EXIT_CODE: "use 'logs' to see what it printed before it ended",
    Kind.TIMED_OUT: "measure the links, and check the other ranks' logs to see what they were "
    "doing",
}
"""``{what}`` is replaced by the name in the message."""
