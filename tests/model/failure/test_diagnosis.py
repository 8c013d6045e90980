"""Diagnosis of a stalled job: the cause is the rank that does not wait for others."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import Evidence, LinkTry, NetworkState, Trouble
from jupyter_mntrain.model.records.job import (
    Doing,
    JobState,
    PartStatus,
    RankStack,
    RankStatus,
    Stall,
)
from tests.wording import says


def part(
    number: int, *doing: Doing, state: JobState = "running", where: str = "", since_s: float = 5.0
) -> PartStatus:
    """Node ``n{number}`` with ranks from ``10 * number`` on; without any, it gets on."""
    stacks = tuple(
        RankStack(rank=Rank(10 * number + index), doing=one, pid=100 + index, where=where)
        for index, one in enumerate(doing)
    )
    stall = Stall(since_s=since_s, limit_s=10.0, step=3, stacks=stacks) if doing else None
    return PartStatus(node_id=NodeId(f"{number:032x}"), node=f"n{number}", state=state, stall=stall)


WAITS: Doing = "waiting for others"


@pytest.mark.parametrize(
    ("parts", "node", "rank", "kind", "names", "fix"),
    [
        ([part(0, WAITS), part(1, "stopped")], "n1", 10, Kind.STOPPED, "", "kill -CONT 100"),
        (
            [part(0, WAITS), part(1, "busy", where="load (data.py:12)")],
            "n1",
            10,
            Kind.BUSY,
            "load (data.py:12)",
            "",
        ),
        ([part(0, "busy", "stopped"), part(1, WAITS)], "n0", 1, Kind.STOPPED, "", "kill -CONT 101"),
        (
            [part(0, WAITS), part(1, "stopped", where="/sys/fs/cgroup/docker/7f")],
            *("n1", 10, Kind.STOPPED, "/sys/fs/cgroup/docker/7f", "docker unpause"),
        ),
        ([part(0, WAITS), part(1, "in the kernel")], "n1", 10, Kind.IN_KERNEL, "", "dmesg"),
        ([part(0, WAITS), part(1, state="unknown")], "n1", None, Kind.NODE_LOST, "", ""),
        ([part(0, WAITS), part(1, WAITS)], None, None, Kind.ALL_WAIT, "n0 and n1", ""),
        ([part(0, WAITS, WAITS)], None, None, Kind.ALL_WAIT, "", ""),
        ([part(0, WAITS), part(1, "not known")], None, None, Kind.NO_PROGRESS, "", ""),
        ([part(0, "busy"), part(1, "busy")], "n0", 0, Kind.BUSY, "rank 10", ""),
    ],
)
def test_the_diagnosis(
    parts: list[PartStatus], node: str | None, rank: int | None, kind: Kind, names: str, fix: str
) -> None:
    found = diagnose(parts)
    assert found is not None
    assert (found.node, found.rank, found.kind) == (node, rank, kind)
    assert says(names, found.cause)
    assert says(fix, found.fix)
    assert found.fix
    assert not found.fix.endswith(".")


def trouble(kind: Trouble | None, peer: str = "") -> LinkTry:
    return LinkTry(interface="eth1", trouble=kind, peer=peer)


def works(peer: str) -> LinkTry:
    return trouble(None, peer)


@pytest.mark.parametrize(
    ("first", "second", "node", "kind", "names", "fix"),
    [
        ((works("n1"),), (trouble("down"),), "n1", Kind.LINK_DOWN, "eth1", "ip link set eth1 up"),
        (
            (trouble("no connection", "n1"),),
            (trouble("no connection", "n0"),),
            "n1",
            Kind.LINK_BLOCKED,
            "connections to and from n0 over eth1 get no answer",
            "the switch",
        ),
        (
            (trouble("no connection", "n1"),),
            (works("n0"),),
            "n1",
            Kind.ONE_WAY_LINK,
            "connections from n0 over eth1 fail, though n1 can connect to n0",
            "let n0 connect to n1",
        ),
        (
            (trouble("stuck", "n1"),),
            (trouble("stuck", "n0"),),
            "n0",
            Kind.MTU_TOO_LARGE,
            "connections to n1 open",
            "ip link set eth1 mtu 1500",
        ),
        (  # what is lost both ways may look like an MTU from one end
            (trouble("stuck", "n1"),),
            (trouble("lossy", "n0"),),
            "n1",
            Kind.LINK_SLOW,
            "even small packets are lost over eth1",
            "policer",
        ),
        *(
            (
                (trouble(how, "n1"),),
                (),
                "n1",
                Kind.LINK_BLOCKED,
                f"connections from n0 over eth1 {words}",
                "the switch",
            )
            for how, words in (("no connection", "get no answer"), ("refused", "are refused"))
        ),
        (  # not before both ends have tried theirs
            (trouble("no connection", "n1"),),
            None,
            None,
            Kind.ALL_WAIT,
            "n0 and n1 may be broken",
            "measure the",
        ),
        (
            (works("n1"),),
            (works("n0"),),
            None,
            Kind.ALL_WAIT,
            "the links between them work",
            "has a receive",
        ),
        *(
            ((works("n1"),), other, None, Kind.ALL_WAIT, "n0 and n1 may be broken", "measure the")
            for other in ((), None)
        ),
    ],
)
def test_links_that_were_tried_say_which_of_them_is_broken(
    first: tuple[LinkTry, ...],
    second: tuple[LinkTry, ...] | None,
    node: str | None,
    kind: Kind,
    names: str,
    fix: str,
) -> None:
    found = diagnose([tried(part(0, WAITS), first), tried(part(1, WAITS), second)])
    assert found is not None
    assert (found.node, found.kind) == (node, kind)
    assert says(names, found.cause)
    assert says(fix, found.fix)


def test_an_interface_that_changed_is_named_before_the_links_it_breaks() -> None:
    before = NetworkState(interface="eth1", is_there=True, is_up=True, addresses=("10.0.0.1/24",))
    now = msgspec.structs.replace(before, addresses=())
    found = Evidence(time_s=6.0, network=now, at_launch=before)
    cut = tried(part(0, WAITS), (trouble("no connection", "n1"),))
    problem = diagnose([cut, msgspec.structs.replace(part(1, WAITS), evidence=found)])
    assert problem is not None
    assert (problem.kind, problem.node) == (Kind.ADDRESS_CHANGED, "n1")


def tried(one: PartStatus, links: tuple[LinkTry, ...] | None) -> PartStatus:
    network = NetworkState(interface="eth1", is_there=True, is_up=True)
    return msgspec.structs.replace(one, evidence=Evidence(time_s=6.0, network=network, links=links))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part(0), part(1)],
        [part(0), part(1, "busy")],  # another node gets on
        [part(0, "busy", state="failed"), part(1)],
        [part(0, "stopped", state="stopping")],
        [part(0, state="unknown"), part(1, state="unknown")],
    ],
)
def test_a_job_of_which_a_part_gets_on_is_not_stalled(parts: list[PartStatus]) -> None:
    assert diagnose(parts) is None


def test_ranks_that_have_ended_do_not_stall_while_torchrun_has_not_noticed() -> None:
    ended = msgspec.structs.replace(
        part(0), stall=Stall(since_s=5.0, limit_s=10.0, step=3, stacks=())
    )
    assert diagnose([ended]) is None
    found = diagnose([ended, part(1, "stopped")])
    assert found is not None
    assert (found.kind, found.node) == (Kind.STOPPED, "n1")


def with_rank(gone: RankStatus) -> PartStatus:
    """A part whose only rank has ended, which its torchrun has not told yet."""
    stall = Stall(since_s=5.0, limit_s=60.0, step=None, stacks=())
    return msgspec.structs.replace(part(0), ranks=(gone,), stall=stall)


OS_ERROR = Problem(kind=Kind.DISK_FULL, cause="OSError: [Errno 28] (a.py, line 3)", fix="free some")


@pytest.mark.parametrize(
    ("code", "done_s", "problem", "kind", "words"),
    [
        (0, None, None, Kind.ENDED_EARLY, "ended normally while"),
        (None, 3.9, None, Kind.ENDED_EARLY, "ended normally while"),
        (None, None, None, Kind.ENDED_EARLY, "in a way that is not known yet"),
        (3, None, None, Kind.EXIT_CODE, "ended with exit code 3 while"),
        (-9, None, None, Kind.KILLED, "was killed by SIGKILL while"),
        (-15, None, None, Kind.TERMINATED, "was killed by SIGTERM while"),
        (-11, 3.9, None, Kind.CRASHED, "was killed by SIGSEGV while"),
        (1, None, OS_ERROR, Kind.DISK_FULL, "OSError: [Errno 28] (a.py, line 3)"),
    ],
)
def test_a_rank_that_has_ended_is_told_by_how_it_did(
    code: int | None, done_s: float | None, problem: Problem | None, kind: Kind, words: str
) -> None:
    gone = RankStatus(
        rank=Rank(0),
        state="running",
        ended_s=4.0,
        exit_code=code,
        done_s=done_s,
        problem=problem,
    )
    found = diagnose([with_rank(gone), part(1, WAITS, WAITS)])
    assert found is not None
    assert (found.kind, found.node, found.rank) == (kind, "n0", 0)
    assert says(words, found.cause)


def test_a_rank_that_has_ended_is_why_the_others_wait() -> None:
    gone = RankStatus(rank=Rank(0), state="running", ended_s=4.0)
    ended = with_rank(gone)
    found = diagnose([ended, part(1, WAITS, WAITS)])
    assert found is not None
    assert (found.kind, found.node, found.rank) == (Kind.ENDED_EARLY, "n0", 0)
    found = diagnose([ended, part(1, WAITS, "busy")])
    assert found is not None
    assert (found.kind, found.rank) == (Kind.BUSY, 11)


def test_it_has_stalled_since_the_first_of_its_parts_did() -> None:
    found = diagnose([part(0, WAITS, since_s=7.0), part(1, WAITS, since_s=6.0)])
    assert found is not None
    assert found.time_s == 6.0


def test_ranks_that_report_nothing_may_compute_for_long() -> None:
    def silent(made: PartStatus) -> PartStatus:
        assert made.stall is not None
        return msgspec.structs.replace(
            made, stall=msgspec.structs.replace(made.stall, is_reported=False)
        )

    busy, waits = silent(part(0, "busy")), silent(part(1, WAITS))
    assert diagnose([busy, silent(part(1, "busy"))]) is None
    found = diagnose([busy, waits])
    assert found is not None
    assert (found.kind, found.node) == (Kind.BUSY, "n0")


@pytest.mark.parametrize(
    ("doing", "kind"),
    [
        ("busy", Kind.TRACEBACK),
        (WAITS, Kind.TRACEBACK),
        ("not known", Kind.TRACEBACK),
        ("stopped", Kind.STOPPED),
    ],
)
def test_a_traceback_after_which_a_rank_does_nothing_explains_its_stall(
    doing: Doing, kind: Kind
) -> None:
    printed = Problem(kind=Kind.TRACEBACK, cause="it printed one", fix="mend it", rank=Rank(10))
    stuck = msgspec.structs.replace(part(1, doing), warnings=(printed,))
    found = diagnose([part(0, WAITS), stuck])
    assert found is not None
    assert (found.kind, found.node, found.rank, found.time_s) == (kind, "n1", 10, 5.0)


@pytest.mark.parametrize(
    ("mtus", "words"),
    [
        ((9000, 9000), "on n0 and n1: ip link set eth1 mtu 1500"),
        ((1500, 9000), "on n1: ip link set eth2 mtu 1500"),
        ((9000, 1500), "on n0: ip link set eth1 mtu 1500"),
        ((1500, 1500), "ip link set eth1 mtu 1400 on both"),
        ((None, None), "on n0 and n1: ip link set eth1 mtu 1500"),
    ],
)
def test_the_fix_of_an_mtu_knows_the_one_that_is_set(
    mtus: tuple[int | None, int | None], words: str
) -> None:
    parts = []
    for number, mtu in enumerate(mtus):
        name = f"eth{number + 1}"
        state = NetworkState(interface=name, is_there=True, is_up=True, mtu=mtu)
        link = LinkTry(interface=name, trouble="stuck", peer=f"n{1 - number}")
        found = Evidence(time_s=1.0, network=state, links=(link,))
        parts.append(msgspec.structs.replace(part(number, WAITS), evidence=found))
    problem = diagnose(parts)
    assert problem is not None
    assert problem.kind is Kind.MTU_TOO_LARGE
    assert says(words, problem.fix)
