"""Blocked collectives: recognizes where in torch.distributed a rank waits. Pure.

A waiting rank is in one of a few places in torch.distributed. Which one it is, and whether the
other ranks are in the same place, tells what went wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jupyter_mntrain.model.failure.calls import GroupCalls
from jupyter_mntrain.model.ids import Rank

Site = Literal[
    "build",
    "rendezvous",
    "new group",
    "barrier",
    "gather",
    "collective",
    "pipeline",
    "receive",
    "send",
    "exchange",
    "gpu",
]

Frame = tuple[str, int, str]
"""File, line, function."""


class Meaning(NamedTuple):
    """Meaning of a place: what a rank does there, the fix if other ranks are elsewhere, and the fix
    if all are there although links work.
    """

    is_in: str
    differ: str
    together: str


_SAME_ORDER_FIX = (
    "every rank must make the same calls in the same order: look for an `if rank == …` around"
)

_BUILD_FIX = (
    "if nothing builds it there any more, remove the lock that an ended build has left: "
    "rm ~/.cache/torch_extensions/*/*/lock (or below $TORCH_EXTENSIONS_DIR)"
)

MEANINGS: dict[Site, Meaning] = {
    "build": Meaning(
        "waits for whoever builds a C++ extension (cpp_extension.load) to remove the lock",
        _BUILD_FIX,
        _BUILD_FIX,
    ),
    "new group": Meaning(
        "creates a process group (new_group)",
        "have every rank call new_group for every group, in the same order, whether or "
        "not it is a member; code that assumes the same number of GPUs on every node often breaks "
        "this rule",
        "create all groups in the same order on every rank",
    ),
    "rendezvous": Meaning(
        "waits for the others to join (init_process_group)",
        "have every rank call init_process_group, with the same backend, before anything else",
        "check that no rank was started with another WORLD_SIZE or MASTER_ADDR",
    ),
    "barrier": Meaning(
        "is in a barrier",
        f"{_SAME_ORDER_FIX} the barrier, and for an error that one rank caught",
        "check that all ranks call the same barrier of the same group",
    ),
    "gather": Meaning(
        "gathers from all ranks (all_gather)",
        "check why the others have not reached it: fewer batches, or another code path",
        "gather tensors of the same shape, of the same group, on every rank",
    ),
    "collective": Meaning(
        "is in a collective (all_reduce, broadcast, …)",
        f"{_SAME_ORDER_FIX} it",
        "check that the call's shapes, dtypes and groups are the same on every rank",
    ),
    "receive": Meaning(
        "waits to receive",
        "check that its peer sends with the same tag and the same number of times",
        "have one of the two ranks send while the other receives; they must not both receive first",
    ),
    "send": Meaning(
        "waits to send",
        "check that its peer receives with the same tag and the same number of times",
        "have one of the two ranks receive while the other sends; they must not both send first",
    ),
    "exchange": Meaning(
        "waits for an exchange with another rank to end",
        "check that its peer has started the same exchange",
        "check that every send has a receive of the same size",
    ),
    "pipeline": Meaning(
        "waits for what a neighboring stage sends",
        "see the rank that is not in its schedule: the others wait for its stage",
        "give every rank the same schedule, with the same number and size of microbatches",
    ),
    "gpu": Meaning(
        "waits for its GPU, which may wait for other ranks in NCCL",
        "check where the others are: NCCL waits on the GPU until all ranks reach the same call",
        "set NCCL_DEBUG=INFO and see which call of which rank is missing; the wrong "
        "NCCL_SOCKET_IFNAME on one node does this, too; between GPUs of one node, try "
        "--env NCCL_P2P_DISABLE=1",
    ),
}
"""If ranks are in different places, the first of these explains most."""

_FUNCTIONS: tuple[tuple[str, Site], ...] = (
    ("init_process_group|_rendezvous.*|rendezvous", "rendezvous"),
    ("new_group|_new_group_with_tag|new_subgroups.*|_new_process_group_helper", "new group"),
    ("barrier|monitored_barrier", "barrier"),
    ("all_gather.*|gather|gather_object|_all_gather_base", "gather"),
    (
        "all_reduce.*|reduce|broadcast.*|scatter.*|reduce_scatter.*|all_to_all.*|_object_to_tensor",
        "collective",
    ),
    ("recv|recv_object_list", "receive"),
    ("send|send_object_list", "send"),
    ("batch_isend_irecv|isend|irecv", "exchange"),
)
_SITES = tuple((re.compile(rf"(?:{names})\Z"), site) for names, site in _FUNCTIONS)
_PIPELINE = re.compile(r"_wait_batch_p2p|_batch_p2p|_step_microbatches|_get_recv_ops|step\Z")
_WAIT_CALL = re.compile(r"\.wait(_stream)?\(")
_GPU_CALL = re.compile(r"\.(item|tolist|cpu|numpy|synchronize)\(")


def site_of(frames: Sequence[Frame], innermost_line: str = "") -> Site | None:
    """Find the place where a rank waits for another; ``None`` if it does not wait.

    Args:
        frames: of its main thread, the innermost first.
        innermost_line: source line of the innermost frame, if readable: a call into C++ has no
            frame.
    """
    if frames and frames[0][0].endswith("/torch/utils/file_baton.py"):
        return "build"
    of_torch = [frame for frame in frames if "/torch/distributed/" in frame[0]]
    if any("/pipelining/" in file and _PIPELINE.match(name) for file, _, name in of_torch):
        return "pipeline"
    # From the outside in: all_gather_object calls all_gather, and new_group a barrier.
    for _, _, name in reversed(of_torch):
        for names, site in _SITES:
            if names.match(name):
                return site
    if of_torch or _WAIT_CALL.search(innermost_line):
        return "exchange"
    is_sync = bool(frames) and "/torch/cuda/" in frames[0][0] and frames[0][2] == "synchronize"
    return "gpu" if is_sync or _GPU_CALL.search(innermost_line) else None


def pending_site(frames: Sequence[Frame], calls: Sequence[GroupCalls]) -> Site | None:
    """Find the collective that a rank waits for in torch's C++, where Python shows no sign of it:
    the backward pass of DistributedDataParallel. ``None`` if it does not wait.

    Args:
        frames: of its main thread, the innermost first.
        calls: its last ones, by process group.
    """
    if not frames or "/torch/" not in frames[0][0]:
        return None
    pending = [one.calls[-1] for one in calls if one.calls and not one.calls[-1].is_over]
    if not pending:
        return None
    named = (site for names, site in _SITES if names.match(pending[-1].name))
    return next(named, "collective")


class WaitingRank(NamedTuple):
    """A rank that waits for others."""

    rank: Rank
    node: str
    site: Site
    where: str = ""
    """The script's own line at which it waits."""


def doing_there(one: WaitingRank) -> str:
    """Describe a waiting rank: ``rank 1 on node2 is in a barrier, in save (train.py:12)``."""
    at = f", in {one.where}" if one.where else ""
    return f"rank {one.rank} on {one.node} {MEANINGS[one.site].is_in}{at}"


def why_all_wait(ranks: Sequence[WaitingRank]) -> tuple[str, str]:
    """Return cause and fix if all ranks wait for one another although the links work."""
    first = ranks[0]
    if all(_same(one, first) for one in ranks):
        summary = f"all ranks wait for each other: each {MEANINGS[first.site].is_in}"
        where = f", in {first.where}" if first.where else ""
        return summary + where, MEANINGS[first.site].together
    # Of two different calls, the rarer one is probably wrong.
    rare = min(ranks, key=lambda one: sum(_same(one, another) for another in ranks))
    common = next(one for one in ranks if not _same(one, rare))
    odd = min((rare, common), key=lambda one: list(MEANINGS).index(one.site))
    summary = f"{doing_there(rare)}, but {doing_there(common)}: they wait for each other forever"
    return summary, MEANINGS[odd.site].differ


def _same(one: WaitingRank, other: WaitingRank) -> bool:
    return (one.site, one.where) == (other.site, other.where)
