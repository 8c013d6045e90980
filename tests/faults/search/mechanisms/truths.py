"""Truths: what is true of a fault, in the forms that many mechanisms share."""

from __future__ import annotations

from tests.faults.search.case import Accept, Channels, Truth
from tests.faults.search.mechanisms.mechanism import Setting
from tests.faults.search.vocabulary import AGENT_GONE, ENDED_EARLY, NODE_LOST, SILENT_NODE

FAILED = frozenset({"failed", "stopping"})
STALLED = frozenset({"running", "starting"})
RUNNING = frozenset({"running"})

STALL_S = 25.0
"""A stall is told after 10 s; then links are tried."""

LINK_S = 30.0
"""As a stall, and every link takes its time."""

START_S = 30.0
"""Before the first step all ranks have to wait for 15 s (in the lab)."""

SLOW_S = 35.0
"""Whoever says that something is slow has to watch for a while."""

LOST_S = 20.0
"""A node that is silent is lost after 6 s."""

Kinds = frozenset[str]
NONE: Kinds = frozenset()

GOES_ON = Truth(is_harmless=True, states=RUNNING)


def rank_of(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> tuple[Accept, ...]:
    """The guilty rank is to be named."""
    nodes, ranks = frozenset({setting.guilty}), frozenset({setting.rank})
    return (Accept(kinds, vague, nodes, ranks),)


def any_rank_there(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> tuple[Accept, ...]:
    """A fault of the node that hits all of its ranks: the first of them to meet it is named."""
    ranks = frozenset(setting.layout.ranks(setting.guilty))
    return (Accept(kinds, vague, frozenset({setting.guilty}), ranks),)


def node_of(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> tuple[Accept, ...]:
    """The guilty node is to be named."""
    return (Accept(kinds, vague, frozenset({setting.guilty})),)


def either(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> tuple[Accept, ...]:
    """Between two nodes: either of them is the right one."""
    return (Accept(kinds, vague, frozenset(setting.layout.names)),)


def on_node(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> tuple[Accept, ...]:
    """Said of the guilty node itself, not of a job."""
    channels: Channels = frozenset({"node"})
    return (Accept(kinds, vague, frozenset({setting.guilty}), channels=channels),)


def fails(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> Truth:
    """The job ends because of the guilty rank."""
    return Truth(rank_of(setting, kinds, vague), states=FAILED)


def leaves(setting: Setting) -> Truth:
    """The guilty rank ends well, too early; if the others have not met it, they wait for it."""
    return Truth(rank_of(setting, ENDED_EARLY), states=FAILED | STALLED)


def stalls(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> Truth:
    """The job waits because of the guilty rank."""
    return Truth(rank_of(setting, kinds, vague), states=STALLED, within_s=STALL_S)


def link_stalls(setting: Setting, accepts: tuple[Accept, ...]) -> Truth:
    """The job waits because of a link."""
    within_s = LINK_S if setting.moment == "steps" else START_S
    return Truth(accepts, states=STALLED, within_s=within_s)


def any_silence() -> tuple[Accept, ...]:
    """A node may be silent for a while."""
    channels: Channels = frozenset({"node"})
    return (Accept(AGENT_GONE | SILENT_NODE, channels=channels),)


def of_member(setting: Setting, kinds: Kinds, vague: Kinds = NONE) -> Truth:
    """Said of the node, or where a launch is refused because of it; a job goes on without it."""
    channels: Channels = frozenset({"node", "launch"})
    accept = Accept(kinds, vague | SILENT_NODE, frozenset({setting.guilty}), channels=channels)
    lost = Accept(NODE_LOST, nodes=frozenset({setting.guilty}))
    return Truth((accept,), is_harmless=setting.moment == "steps", may=(lost,), within_s=LOST_S)
