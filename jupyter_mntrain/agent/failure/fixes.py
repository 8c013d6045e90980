"""What to do about a failure, by what it says of itself. The first that fits is taken."""

from __future__ import annotations

import re

_AGAIN = "launch it again, or use --restarts to do that automatically"

_FIXES: tuple[tuple[str, str], ...] = (
    (
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "use more and smaller microbatches, or fewer layers on that node (pipeline.split)",
    ),
    (
        r"machine ran out of memory|DefaultCPUAllocator: can't allocate",
        "use fewer processes there or a smaller batch; 'nodes' shows its memory",
    ),
    (r"killed by SIGKILL", "see dmesg and journalctl on that node for what sent the signal"),
    (
        r"killed by SIGTERM|ended by a signal from outside",
        "see journalctl on that node, and check for a scheduler's time limit",
    ),
    (
        r"killed by SIG(SEGV|BUS|ILL|ABRT|FPE)",
        "compare the versions under 'nodes'; a package built for another torch does this",
    ),
    (r"No space left on device|disk is full", "free some space on that node"),
    (r"No module named '(?P<what>[\w.]+)'", "install {what} on that node"),
    (
        r"No such file or directory|FileNotFoundError",
        "put it on every node at the same place, or send a small file along with --file",
    ),
    (r"Permission denied|PermissionError", "give the agent's user permission to read and write it"),
    (
        r"Unable to find address for: (?P<what>\S+)|no socket interface found",
        "choose another interface for that node: --member NODE:N:IFACE",
    ),
    (
        r"no kernel image is available",
        "install a torch that is built for the GPUs of that node",
    ),
    (
        r"driver version is insufficient|forward compatibility was attempted",
        "update the NVIDIA driver of that node, or install an older torch",
    ),
    (
        r"[Aa]ddress already in use|EADDRINUSE",
        "another program uses it: launch again without --port, or with --restarts",
    ),
    (r"keeper was killed|machine was restarted|agent was killed", _AGAIN),
    (
        r"closed by peer|reset by peer|[Rr]ead error|[Bb]roken pipe",
        "see the other nodes' logs: the rank that closed the connection failed first",
    ),
    (
        r"[Tt]imed out|timeout",
        "measure the links, and see the other ranks' logs",
    ),
)


def fix_for(summary: str) -> str:
    """One line of what to do; empty if nobody knows, or the summary says it."""
    if "Fix: " in summary:
        return ""
    for pattern, fix in _FIXES:
        if match := re.search(pattern, summary):
            return fix.format(**match.groupdict())
    return ""
