"""Verdicts: passed only by a figure; what cannot be told is not judged, with why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    PARTS,
    AcceptedNode,
    Criterion,
    DocumentedCommand,
    FoundProcess,
    Observed,
)
from jupyter_mntrain.metrics.acceptance.verdicts import judge
from jupyter_mntrain.metrics.summary import OffPlan, OffPlanCause
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.benchmark import BenchedRank, Transport
from tests.metrics.acceptance.observations import GOOD, NODES, POINTS, bench, fault, report
from tests.wording import says

PROBLEM = Problem(kind=Kind.ERROR, cause="no route", node="hal")
ALWAYS_OPEN = {"rdma", "node-lost", "link-down"}
"""Without InfiniBand, and without somebody who pulls plugs."""


def verdicts(**changes: Any) -> dict[str, Criterion]:
    return {one.key: one for one in judge(msgspec.structs.replace(GOOD, **changes))}


def with_(record: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(record, **changes)


def test_where_all_is_well_all_that_can_be_judged_passes() -> None:
    found = verdicts()
    assert {one.judgment for key, one in found.items() if key not in ALWAYS_OPEN} == {"passed"}
    assert {found[key].judgment for key in ALWAYS_OPEN} == {"not judged"}
    assert all(one.why for one in found.values() if one.judgment != "passed")
    assert not report().has_failed


def test_what_did_not_run_is_not_judged_with_its_reason() -> None:
    found = judge(Observed(nodes=NODES, sizes=(1, 2), left_out=dict.fromkeys(PARTS, "at lunch")))
    assert {one.judgment for one in found} == {"not judged"}
    told = {one.key for one in found if one.why == "at lunch"}
    assert told == {one.key for one in found} - ALWAYS_OPEN


def test_nothing_at_all_passes_nothing() -> None:
    assert {one.judgment for one in judge(Observed())} == {"not judged"}


def test_scaling_is_judged_against_what_was_predicted() -> None:
    found = verdicts()["scaling-2"]
    assert found.value == pytest.approx((1700 / 2000) / (1980 / 2200))
    assert found.limit == 0.9
    assert "85%" in found.figure
    assert "90%" in found.figure
    slow = (POINTS[0], with_(POINTS[1], tokens_per_s=1600.0))
    assert verdicts(scaling=slow)["scaling-2"].judgment == "failed"
    enough = (POINTS[0], with_(POINTS[1], tokens_per_s=0.9 * 0.9 * 2000.0 + 1e-6))
    assert verdicts(scaling=enough)["scaling-2"].judgment == "passed"


def test_a_drop_is_explained_largest_first() -> None:
    off = OffPlan(1.3, (OffPlanCause("computing", 1.5, rank=3), OffPlanCause("traffic", 0.4)))
    points = (POINTS[0], with_(POINTS[1], off_plan=off, bottleneck="the link wopr → muthur"))
    why = verdicts(scaling=points)["scaling-2"].why
    assert "12%" in why
    assert why.index("12%") < why.index("5%") < why.index("3%")
    assert says("rank 3 computes 1.5 times as long", why)
    assert "the link wopr → muthur" in why


def test_shared_cores_are_never_a_pass() -> None:
    shared = tuple(with_(one, boot_id="boot-1") for one in NODES)
    found = verdicts(nodes=shared)
    for key in ("scaling-2", "bandwidth"):
        assert found[key].judgment == "not judged"
        assert "wopr and muthur" in found[key].why
        assert found[key].figure, "it is told all the same"
    slow = verdicts(nodes=shared, scaling=(POINTS[0], with_(POINTS[1], tokens_per_s=10.0)))
    assert slow["scaling-2"].judgment == "not judged"


def test_only_the_nodes_of_a_point_have_to_be_machines_of_their_own() -> None:
    nodes = (*NODES, AcceptedNode("hal", "boot-2", 2))
    third = with_(POINTS[1], nodes=("wopr", "muthur", "hal"), ranks=6)
    found = verdicts(nodes=nodes, sizes=(1, 2, 3), scaling=(*POINTS, third))
    assert found["scaling-2"].judgment == "passed"
    assert found["scaling-3"].judgment == "not judged"
    assert "muthur and hal" in found["scaling-3"].why


@pytest.mark.parametrize(
    "changes",
    [{"guesses": ("speed of CPU",)}, {"predicted_tokens_per_s": None}, {"tokens_per_s": None}],
)
def test_without_a_prediction_or_a_figure_scaling_is_not_judged(changes: dict[str, Any]) -> None:
    found = verdicts(scaling=(POINTS[0], with_(POINTS[1], **changes)))["scaling-2"]
    assert found.judgment == "not judged"
    assert found.why


def test_more_nodes_than_there_are_and_jobs_that_failed() -> None:
    found = verdicts(sizes=(1, 2, 4), scaling=(POINTS[0], with_(POINTS[1], problem=PROBLEM)))
    assert found["scaling-2"].judgment == "failed"
    assert "no route" in found["scaling-2"].why
    assert found["scaling-4"].judgment == "not judged"
    assert "2" in found["scaling-4"].why


@pytest.mark.parametrize(
    ("nodes", "sizes", "points"),
    [
        (NODES[:1], (1,), POINTS[:1]),
        (NODES, (2,), POINTS[1:]),
        (NODES, (1, 2), (with_(POINTS[0], problem=PROBLEM, tokens_per_s=None), POINTS[1])),
    ],
)
def test_a_job_is_not_compared_with_itself(nodes: Any, sizes: Any, points: Any) -> None:
    found = verdicts(nodes=nodes, sizes=sizes, scaling=points)[f"scaling-{len(nodes)}"]
    assert found.judgment == "not judged"
    assert found.why


def test_bandwidth_is_a_share_of_the_line_rate() -> None:
    found = verdicts()["bandwidth"]
    assert (found.value, found.limit) == (0.95, 0.9)
    assert verdicts(benchmark=bench(0.89))["bandwidth"].judgment == "failed"
    assert verdicts(benchmark=bench(None, unmeasured="a job runs"))["bandwidth"].why == "a job runs"
    assert verdicts(benchmark=bench(None))["bandwidth"].judgment == "not judged"
    assert verdicts(benchmark=bench(failure=PROBLEM))["bandwidth"].judgment == "failed"
    assert verdicts(benchmark=bench(nodes=("wopr",)))["bandwidth"].judgment == "not judged"
    assert verdicts(benchmark=bench(sizes=()))["bandwidth"].judgment == "not judged"
    failed = verdicts(benchmark=None, bandwidth_problem=PROBLEM)["bandwidth"]
    assert failed.judgment == "failed"


@pytest.mark.parametrize(("network", "judgment"), [("IB", "passed"), ("Socket", "failed")])
def test_where_there_is_infiniband_tcp_is_a_failure(network: str, judgment: str) -> None:
    nodes = tuple(with_(one, rdma_ports=("mlx5_0:1",)) for one in NODES)
    ranks = tuple(
        BenchedRank(rank, node, "RTX 3090", "nccl", Transport(network=network, ways=("NET/IB",)))
        for rank, node in enumerate(("wopr", "wopr", "muthur", "muthur"))
    )
    found = verdicts(nodes=nodes, benchmark=bench(ranks=ranks))["rdma"]
    assert found.judgment == judgment
    assert ("muthur" in found.why) == (judgment == "failed")


@pytest.mark.parametrize(
    "changes",
    [
        {"refused": None},
        {"held": 1},
        {"waited": False},
        {"started_after_s": None},
        {"problem": PROBLEM},
    ],
)
def test_a_gang_holds_nothing_while_it_waits(changes: dict[str, Any]) -> None:
    found = verdicts(gang=with_(GOOD.gang, **changes))
    assert found["gang-contention"].judgment == "failed"
    assert found["gang-contention"].why
    assert found["gang-start"].judgment == "passed"


def test_a_gang_that_starts_in_part_has_failed() -> None:
    found = verdicts(gang=with_(GOOD.gang, ranks=3, first_step_s=None))["gang-start"]
    assert found.judgment == "failed"
    assert "3 of 4" in found.figure


@pytest.mark.parametrize(
    "changes",
    [
        {"detect_s": None},
        {"said": None},
        {"recover_s": None},
        {"problem": PROBLEM},
        {"said": Problem(kind=Kind.KILLED, cause="killed", node="wopr")},
    ],
)
def test_a_failure_is_named_and_gone_on_from(changes: dict[str, Any]) -> None:
    found = verdicts(faults=(fault("rank-killed", **changes), *GOOD.faults[1:]))
    assert found["rank-killed"].judgment == "failed"
    assert found["rank-killed"].why
    assert found["rank-frozen"].judgment == "passed"


def test_a_time_below_a_heartbeat_is_not_told_as_zero() -> None:
    found = verdicts(faults=(fault("rank-killed", detect_s=0.0),))["rank-killed"]
    assert says("less than 1 s", found.figure)


def test_where_losses_differ_it_is_told_since_when_norms_do() -> None:
    changes = {"different": (11,), "different_norms": (7, 8, 11), "largest_difference": 1e-7}
    found = verdicts(resumption=with_(GOOD.resumption, **changes))["resume-exact"]
    assert says("the losses differ from step 11 on, by up to 1e-07", found.why)
    assert says("gradient norms differ from step 7 on", found.figure)


@pytest.mark.parametrize(
    "changes",
    [
        {"different": (11,), "largest_difference": 1e-7},
        {"compared": 0},
        {"saved_step": None},
        {"missing": 1},
        {"problem": PROBLEM},
    ],
)
def test_a_resumed_run_has_equal_losses_from_a_whole_checkpoint(changes: dict[str, Any]) -> None:
    found = verdicts(resumption=with_(GOOD.resumption, **changes))["resume-exact"]
    assert found.judgment == "failed"
    assert found.why


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": (FoundProcess("wopr", 4711, JobId("j-1"), "python"),)},
        {"leases": 1},
        {"kept": (JobId("j-1"),)},
        {"looked_on": ("wopr",)},
        {"problem": PROBLEM},
    ],
)
def test_nothing_is_left_on_any_node(changes: dict[str, Any]) -> None:
    found = verdicts(leftovers=with_(GOOD.leftovers, **changes))["cleanup"]
    assert found.judgment == "failed"
    assert found.why


def test_a_documented_command_that_fails_is_told_with_what_it_said() -> None:
    bad = DocumentedCommand("mntrain doctor", 1, 2.0, "muthur has no torch")
    found = verdicts(commands=(*GOOD.commands, bad))["documented-path"]
    assert found.judgment == "failed"
    assert "muthur has no torch" in found.why
    assert "1 of 2" in found.figure
