"""Planning: chooses participants, interfaces and placements. Pure."""

from jupyter_mntrain.plan.arrange import arrange, find_participants
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.plan.members import Member, choose_participants, parse_member
from jupyter_mntrain.plan.placement import place
from jupyter_mntrain.plan.spec_check import check_spec
from jupyter_mntrain.plan.versions import Divergence, divergences, refuse_mixed

__all__ = [
    "Divergence",
    "Member",
    "arrange",
    "check_spec",
    "choose_interfaces",
    "choose_participants",
    "divergences",
    "find_node",
    "find_participants",
    "parse_member",
    "place",
    "refuse_mixed",
]
