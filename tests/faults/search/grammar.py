"""Grammar: draws a case by its seed. Pure: the same seed is the same case on every machine."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable
from random import Random

import msgspec

from tests.faults.search.case import (
    STRATA,
    Case,
    Layout,
    Moment,
    Opening,
    Sequence,
    Stratum,
    Truth,
)
from tests.faults.search.mechanisms.agents import AGENTS
from tests.faults.search.mechanisms.belonging import BELONGING
from tests.faults.search.mechanisms.cables import CABLES
from tests.faults.search.mechanisms.certificates import CERTIFICATES
from tests.faults.search.mechanisms.disks import DISKS
from tests.faults.search.mechanisms.firewalls import FIREWALLS
from tests.faults.search.mechanisms.machines import MACHINES
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Setting
from tests.faults.search.mechanisms.names import NAMES
from tests.faults.search.mechanisms.own_disks import OWN_DISKS
from tests.faults.search.mechanisms.rank_ends import RANK_ENDS
from tests.faults.search.mechanisms.rank_limits import RANK_LIMITS
from tests.faults.search.mechanisms.rank_waits import RANK_WAITS
from tests.faults.search.mechanisms.script import SCRIPT
from tests.faults.search.mechanisms.truths import node_of
from tests.faults.search.vocabulary import NODE_LOST

_ROWS = (
    *(CABLES, FIREWALLS, NAMES),
    *(AGENTS, MACHINES),
    *(RANK_ENDS, RANK_LIMITS, RANK_WAITS),
    SCRIPT,
    *(DISKS, OWN_DISKS),
    *(CERTIFICATES, BELONGING),
)
MECHANISMS: dict[str, Mechanism] = {one.name: one for rows in _ROWS for one in rows}

LAYOUTS: tuple[tuple[int, Layout], ...] = (
    (6, Layout((("node1", 1), ("node2", 1)))),
    (2, Layout((("node2", 1), ("node1", 1)))),
    (1, Layout((("node1", 2), ("node2", 1)))),
    (1, Layout((("node1", 1), ("node2", 2)))),
)
"""How often, and which hosts with how many ranks; the first one is the head."""

PAIRED = 0.6
"""Share of a second fault, where the mechanism may follow one."""

OPENINGS: tuple[Opening, ...] = (
    *("a command", "a command"),
    *("a killed kernel", "a restarted server"),
)

PAUSES_S = (0.0, 8.0)
"""A person looks at a job that goes on again at some moment of so long a time."""


def draw(seed: int, stratum: Stratum | None = None) -> Case:
    """The case of a seed.

    Args:
        stratum: instead of the seed's own.
    """
    chance = Random(f"fault {seed}")
    # Six seeds in a row are of six strata, in an order of their own.
    order = Random(f"order {seed // len(STRATA)}").sample(STRATA, len(STRATA))
    chosen = stratum or order[seed % len(STRATA)]
    (mechanism,) = _weighted(chance, of_stratum(chosen))
    moment: Moment = chance.choice(mechanism.moments)
    return _drawn(seed, chance, chosen, mechanism, moment, _layout(chance))


def draw_sequence(seed: int) -> Sequence:
    """Two or three faults of one job, between steps, and the pauses after they are mended.

    Of nodes that join there is none, and of slow-downs neither: they take a job that has long been
    as fast as it can.
    """
    chance = Random(f"sequence {seed}")
    layout, count = _layout(chance), chance.choice((2, 2, 3))
    opening: Opening = chance.choice(OPENINGS)
    cases: list[Case] = []
    for number in range(count):
        able = [one for one in MECHANISMS.values() if _follows(one, is_last=number == count - 1)]
        (mechanism,) = _weighted(chance, able)
        cases.append(_drawn(seed, chance, mechanism.stratum, mechanism, "steps", layout))
    return Sequence(
        seed, opening, tuple(cases), tuple(chance.uniform(*PAUSES_S) for _ in cases[1:])
    )


def _follows(one: Mechanism, *, is_last: bool) -> bool:
    """Whether it may be one of a sequence; all but the last leave a job that goes on."""
    return (
        "steps" in one.moments
        and one.stratum != "trust"
        and not one.slows
        and (is_last or not one.spoils)
    )


def _layout(chance: Random) -> Layout:
    return chance.choices([one for _, one in LAYOUTS], [weight for weight, _ in LAYOUTS])[0]


def _drawn(
    seed: int,
    chance: Random,
    chosen: Stratum,
    mechanism: Mechanism,
    moment: Moment,
    layout: Layout,
) -> Case:
    guilty = chance.choice(layout.names)
    setting = Setting(chance, layout, moment, guilty, chance.choice(layout.ranks(guilty)))
    drawn = mechanism.draw(setting)
    case = Case(
        seed=seed,
        stratum=chosen,
        mechanisms=(mechanism.name,),
        layout=layout,
        moment=moment,
        guilty=guilty,
        rank=setting.rank,
        parameters=(drawn.parameters,),
        truth=drawn.truth,
        marks=frozenset({"exit 0"} if drawn.exits_0 else ()),
        unforeseeable=drawn.unforeseeable,
    )
    if mechanism.pairs and moment == "steps" and chance.random() < PAIRED:
        return _distracted(case, setting)
    return case


def _distracted(case: Case, setting: Setting) -> Case:
    """The same, after something that does no harm and may be taken for the cause."""
    able = [one for one in MECHANISMS.values() if one.distracts]
    (first,) = _weighted(setting.chance, able)
    drawn: Drawn = first.draw(setting)
    truth = case.truth
    if first.cuts and MECHANISMS[case.mechanisms[0]].cuts:
        # As where all cables are pulled: to the others, the node is gone.
        gone = node_of(setting, NODE_LOST)
        truth = msgspec.structs.replace(truth, accepts=(*truth.accepts, *gone))
    # The distraction's own truth may be told as well, but the job's state is the other one's.
    extended: Truth = msgspec.structs.replace(
        truth, may=(*truth.may, *drawn.truth.accepts, *drawn.truth.may)
    )
    return msgspec.structs.replace(
        case,
        mechanisms=(first.name, *case.mechanisms),
        parameters=(drawn.parameters, *case.parameters),
        truth=extended,
    )


def of_stratum(stratum: Stratum) -> list[Mechanism]:
    return [one for one in MECHANISMS.values() if one.stratum == stratum]


def _weighted(chance: Random, among: abc.Sequence[Mechanism]) -> list[Mechanism]:
    return chance.choices(among, [one.weight for one in among])


def shares(cases: Iterable[Case]) -> dict[str, float]:
    """Share of each stratum, and of the hard cases."""
    known = list(cases)
    found: dict[str, float] = {
        stratum: sum(one.stratum == stratum for one in known) / len(known) for stratum in STRATA
    }
    return {**found, "hard": sum(one.is_hard for one in known) / len(known)}
