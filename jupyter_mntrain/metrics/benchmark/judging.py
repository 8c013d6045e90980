"""Judging a benchmark: finds what is slower than it should be, and the reason. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_bit_rate
from jupyter_mntrain.model.records.doctor.benchmark import BenchedRank, PairFigures
from jupyter_mntrain.model.records.node import NodeInfo

SLOW_SHARE = 0.8
"""Share of the other pairs' rate, or of what the link carries, below which a pair is named as
slow."""

MOST_NAMED = 3
"""Slow pairs that are named; of more, only the number."""


def judge(
    ranks: Sequence[BenchedRank], pairs: Sequence[PairFigures], nodes: Sequence[NodeInfo]
) -> tuple[Problem, ...]:
    """Return what is slower than it should be; empty if all is well.

    Args:
        nodes: those of the ranks, as they are now.
    """
    by_node: dict[str, list[BenchedRank]] = defaultdict(list)
    for one in ranks:
        by_node[one.node].append(one)
    ports = {node.name: usable_ports(node) for node in nodes}
    return (*_networks(by_node, ports), *_pairs(pairs))


def usable_ports(node: NodeInfo) -> tuple[str, ...]:
    """Return the InfiniBand and RoCE ports that ranks could use, such as ``mlx5_0:1``."""
    return tuple(
        f"{one.device}:{one.number}"
        for one in node.inventory.rdma_ports
        if one.state == "ACTIVE" and one.obstacle is None
    )


def _networks(
    by_node: Mapping[str, Sequence[BenchedRank]], ports: Mapping[str, tuple[str, ...]]
) -> Iterator[Problem]:
    """Yield a problem for nodes that fall back to TCP, or use only one of several rails."""
    for node, ranks in by_node.items():
        able = ports.get(node, ())
        own = [one.transport for one in ranks if one.backend == "nccl"]
        if able and len(by_node) > 1 and any(one.network == "Socket" for one in own):
            said = next((one.complaint for one in own if one.complaint), "")
            why = f"NCCL says: {said}" if said else "NCCL does not say why"
            yield Problem(
                kind=Kind.SLOW_LINK,
                cause=f"NCCL uses TCP although {', '.join(able)} {_be(able)} active: {why}",
                fix="look at NCCL_IB_DISABLE and NCCL_IB_HCA in the environment of the agent of "
                f"{node}, and at ibv_devinfo there",
                node=node,
            )
        rails = dict.fromkeys(rail for one in own for rail in one.rails)
        over_ib = [one for one in own if one.network != "Socket" and one.rails]
        if len(over_ib) > 1 and len(rails) == 1 and len(able) > 1:
            yield Problem(
                kind=Kind.SLOW_LINK,
                cause=f"its {len(over_ib)} ranks all use {next(iter(rails))}, one of "
                f"{len(able)} active ports: {', '.join(able)}",
                fix=f"look at NCCL_IB_HCA in the environment of the agent of {node}, and at "
                "nvidia-smi topo -m there",
                node=node,
            )


def _slow_beside_others(pairs: Sequence[PairFigures]) -> dict[PairFigures, float]:
    """Return pairs that are much slower than the others' median, slowest first, and the median."""
    found = {}
    for one in sorted(pairs, key=lambda pair: pair.bytes_per_s):
        others = [other.bytes_per_s for other in pairs if other is not one]
        if others and one.bytes_per_s < SLOW_SHARE * median(others):
            found[one] = median(others)
    return found


def _pairs(pairs: Sequence[PairFigures]) -> Iterator[Problem]:
    """Yield a problem for pairs that are slow compared with the others or with their line rate.

    Of those that are far below their line rate, only the worst is reported.
    """
    slow = _slow_beside_others(pairs)
    more = len(slow) - MOST_NAMED
    rest = f" ({more} more {'is' if more == 1 else 'are'} slow)" if more > 0 else ""
    for one, usual in list(slow.items())[:MOST_NAMED]:
        yield Problem(
            kind=Kind.SLOW_LINK,
            cause=f"{_named(one)} reaches {rough_bit_rate(one.bytes_per_s)}, the others "
            f"{rough_bit_rate(usual)}{rest}",
            fix=f"look at the cable, port and card of {one.sender_node} and {one.receiver_node}",
            node=one.sender_node,
        )
    known = [(one.line_share, one) for one in pairs if one.line_share is not None]
    share, least = min(known, key=lambda found: found[0], default=(1.0, None))
    if least is not None and least not in slow and share < SLOW_SHARE:
        yield Problem(
            kind=Kind.SLOW_LINK,
            cause=f"{_named(least)} reaches {rough_bit_rate(least.bytes_per_s)}, {share:.0%} of "
            f"the {rough_bit_rate(least.line_bytes_per_s or 0.0)} that its link carries",
            fix="see whether something else uses the link or the cores of both, and run bench "
            "again",
            node=least.sender_node,
        )


def _named(pair: PairFigures) -> str:
    """Name a pair by its nodes, or by its ranks if both are on one node."""
    if pair.sender_node != pair.receiver_node:
        return f"{pair.sender_node} → {pair.receiver_node}"
    return f"rank {pair.sender} → rank {pair.receiver} on {pair.sender_node}"


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
