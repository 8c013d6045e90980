"""Pending reasons: which end by waiting, and what to do about those that never do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.slurm.pending_reasons import pending_reason
from tests.wording import says

WAITS = ["None", "Resources", "Priority", "BeginTime", "Dependency", "Licenses", "Reservation"]
WAITS += ["QOSMaxJobsPerUserLimit", "AssocGrpNodeLimit", "QOSGrpCpuLimit", "AssocMaxJobsLimit"]
WAITS += ["ReqNodeNotAvail, UnavailableNodes:node3", "Prolog", "Cleaning", "QOSGrpGRES"]
WAITS += ["(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority)"]

NEVER = ["PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints"]
NEVER += ["InvalidAccount", "InvalidQOS", "JobHeldUser", "JobHeldAdmin", "PartitionDown"]
NEVER += ["DependencyNeverSatisfied", "QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit"]
NEVER += ["AssocMaxWallDurationPerJobLimit", "QOSMaxGRESPerNode", "QOSMinGRES", "QOSNotAllowed"]
NEVER += ["AssocGrpCPUMinutesLimit", "AccountNotAllowed", "launch failed requeued held"]


@pytest.mark.parametrize("word", WAITS)
def test_these_end_by_waiting(word: str) -> None:
    assert pending_reason(word, "7").kind is Kind.WAITS_FOR_NODES


@pytest.mark.parametrize("word", NEVER)
def test_these_never_end_and_say_what_to_do(word: str) -> None:
    told = pending_reason(word, "7")
    assert told.kind is Kind.NEVER_GRANTED
    assert told.fix
    assert told.detail == word


def test_a_held_job_is_released_by_its_number() -> None:
    assert says("scontrol release 4711", pending_reason("JobHeldUser", "4711").fix)


@given(st.text(max_size=80))
def test_an_unknown_word_is_told_and_taken_for_one_that_ends(word: str) -> None:
    told = pending_reason(f"Zz{word}", "7")
    assert told.kind is Kind.WAITS_FOR_NODES
    assert told.fix
    assert "\n" not in str(told)
