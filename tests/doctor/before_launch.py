"""Cases of ``tests/faults``: which are in place before a launch, and the check that names each.

Their tests assert that the launch is refused, or warned, with that kind; these rows say by which
check, and show the same fault as it is made on a simulated node.
"""

from __future__ import annotations

from tests.doctor.checklists import Item

BEFORE_LAUNCH: tuple[Item, ...] = (
    Item(
        "a node's firewall admits only the rendezvous port",
        ("reachable",),
        made="its firewall drops what comes",
    ),
    Item("two nodes use a larger MTU than the switch", ("path-mtu",)),
    Item("a script is missing on one node", ("job-paths",), made="it lacks the script"),
    Item(
        "the checkpoint directory is read-only on a node",
        ("writable-paths",),
        made="the disk for checkpoints is mounted read-only",
    ),
    Item(
        "the checkpoint disk is full on a node; the job keeps running",
        ("disk-space",),
        made="the quota of its user",
    ),
    Item("a rank's output fills the disk", ("disk-space",), made="the disk for jobs is full"),
    Item("the name server does not answer", ("reverse-dns",)),
    Item("a node has another version of torch", ("versions",), "the launch compares them itself"),
    Item("the slow management network is chosen", ("fast-network",), "the launch looks itself"),
)

LATER: tuple[str, ...] = (
    "rank gets SIGTERM",
    "rank gets SIGKILL, as by the kernel when memory runs out",
    "rank raises an exception",
    "rank runs out of GPU memory",
    "rank ends early with exit code 0",
    "torchrun gets SIGKILL",
    "the attempt's supervisor gets SIGKILL",
    "rank gets SIGSTOP",
    "rank is stuck in its own code",
    "the training interface goes down on a node",
    "the switch's port goes down",
    "two nodes are cut off from each other",
    "the head's agent gets SIGKILL; the job keeps running",
    "another node's agent gets SIGKILL; the job keeps running",
    "an agent gets SIGSTOP; the job keeps running",
    "a node loses power",
    "a node's clock jumps by +1 h",
    "a node's clock jumps by -1 h",
    "the link between two nodes gets narrow; the job keeps running",
    "a rank's own code gets slow; the job keeps running",
    "another program takes the port between lease and start",
)
"""What no doctor can know: it comes later."""
