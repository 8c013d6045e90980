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
    Kind.CRASHED: "see where it crashed in its stacks; if that is in a library, compare the "
    "versions under 'nodes': a package built for another torch can cause this",
    Kind.DISK_FULL: "free some space on that node, or raise the quota",
    Kind.READ_ONLY: "on that node, remount it writable; if the kernel made it read-only, check "
    "its disk with dmesg",
    Kind.DISK_ERROR: "check dmesg and the disk, or the file server, of that node",
    Kind.FILE_TOO_LARGE: "raise the limit on that node (ulimit -f), or write smaller files",
    Kind.TOO_MANY_FILES: "raise the limit on that node (ulimit -n; LimitNOFILE= in a service), or "
    "use fewer data loader workers",
    Kind.SHARED_MEMORY: "make /dev/shm larger on that node (docker run --shm-size=8g), or use "
    "fewer data loader workers",
    Kind.WORKER_DIED: "see dmesg on that node: it probably ran out of memory or of /dev/shm; use "
    "fewer workers",
    Kind.COLLECTIVE_MISMATCH: "have every rank make the same calls in the same order, with tensors "
    "of the same size and type",
    Kind.NCCL: "launch again with --env NCCL_DEBUG=INFO and read the NCCL WARN lines in 'logs'",
    Kind.GPU_ERROR: "check nvidia-smi and dmesg on that node; --env CUDA_LAUNCH_BLOCKING=1 shows "
    "the line of the script",
    Kind.NO_ROUTE: "check that the ranks' interfaces share a subnet, and the routes of that node "
    "(ip route)",
    Kind.NO_DOWNLOAD: "check the name, and that node's access to the internet; or download it "
    "once, and give its path",
    Kind.NO_MODULE: "install {what} on that node; if it is a file of yours, send it with --file",
    Kind.NO_FILE: "put it on every node at the same path, or send a small file with --file",
    Kind.NO_PERMISSION: "give the agent's user permission to read and write it",
    Kind.NO_INTERFACE: "choose another interface for that node: --member NODE:N:IFACE",
    Kind.NO_CUDA: "see 'nodes': without a GPU there, use the CPU (and gloo, not nccl); with one, "
    "check nvidia-smi, and install a torch that is built for CUDA",
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
