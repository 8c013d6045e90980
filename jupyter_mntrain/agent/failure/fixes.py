"""What to do about a failure, by what it says of itself. The first that fits is taken."""

from __future__ import annotations

import re

_AGAIN = "launch it again; with --restarts it does so by itself"

_FIXES: tuple[tuple[str, str], ...] = (
    (
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "use more and smaller microbatches, or fewer layers on that node (pipeline.split)",
    ),
    (
        r"machine ran out of memory|DefaultCPUAllocator: can't allocate",
        "use fewer processes there or a smaller batch; 'nodes' shows its memory",
    ),
    (r"killed by SIGKILL", "look for who did it: dmesg and journalctl on that node"),
    (
        r"killed by SIGTERM|told to end by a signal",
        "look for who did it: journalctl on that node, or a scheduler's time limit",
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
    (r"Permission denied|PermissionError", "let the user that runs the agent read and write it"),
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
        "another program has taken it: launch it again, without --port, or with --restarts",
    ),
    (r"keeper was killed|machine was restarted|agent was killed", _AGAIN),
    (
        r"closed by peer|reset by peer|[Rr]ead error|[Bb]roken pipe",
        "see the other nodes' logs: whoever hung up is to blame",
    ),
    (
        r"[Tt]imed out|timeout",
        "measure the links, and see what the other ranks were at: their logs",
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
