"""Checks of software and variables: what is no fault, and what is not known yet."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.model.records.job import Participant
from tests.doctor.faults.software import (
    every_with_gpus,
    with_cuda,
    with_given,
    with_loaded,
    with_variables,
)
from tests.doctor.healthy import changed, healthy, with_inventory, with_node
from tests.standin.nodes import gpu

MOSTLY_HARMLESS = {
    "NCCL_SOCKET_IFNAME": "eth7",
    "GLOO_SOCKET_IFNAME": "docker0",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1000",
    "MASTER_ADDR": "old",
    "WORLD_SIZE": "64",
    "RANK": "63",
    "NCCL_DEBUG": "WARN",
    "NCCL_DEBUG_FILE": "/tmp/nccl",
    "NCCL_VERSION": "2.30",
    "CUDA_VERSION": "12.8",
    "HF_HOME": "/data/hf",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
}
"""What a launch sets itself, what each node has of its own, and what only images say."""


def levels(case: Case) -> set[str]:
    return {one.level for one in examine(case)}


def test_what_a_launch_sets_itself_and_what_nodes_have_of_their_own_may_differ():
    assert levels(with_variables(every_with_gpus(healthy()), {}, **MOSTLY_HARMLESS)) == {"passed"}


def test_variables_of_gpus_do_not_matter_without_one():
    case = with_variables(healthy(), {}, NCCL_ALGO="Tree", CUDA_LAUNCH_BLOCKING="1")
    assert levels(case) == {"passed"}


def test_the_same_folder_in_two_homes_is_no_difference():
    case = with_variables(healthy(), {"PYTHONPATH": "/home/ann/lib"}, PYTHONPATH="/home/bob/lib")
    assert levels(case) == {"passed"}


def test_a_proxy_is_one_under_both_of_its_names():
    proxy = "http://proxy:3128"
    case = with_variables(healthy(), {"https_proxy": proxy})
    assert levels(changed(case, environment={"HTTPS_PROXY": proxy})) == {"passed"}
    assert levels(changed(case, environment={})) == {"slows", "passed"}


def test_of_two_nodes_that_differ_the_second_is_named_beside_the_first():
    case = with_variables(healthy(), {}, HF_HUB_OFFLINE="1")
    (found,) = [one for one in examine(Case(nodes=case.nodes[:2])) if one.level != "passed"]
    assert found.problem is not None
    assert (found.check, found.node) == ("variables", "muthur")
    assert "wopr" in found.problem.cause


def test_an_interpreter_that_was_not_asked_yet_is_unknown_and_nothing_else_is_said():
    found = examine(changed(healthy(), loaded=None))
    (unknown,) = [one for one in found if one.level != "passed"]
    assert (unknown.check, unknown.level) == ("torch-import", "unknown")


def test_the_build_of_torch_may_be_missing_in_its_metadata():
    assert levels(with_loaded(healthy(), torch="2.13.0+cu130")) == {"passed"}


def test_healthy_gpus_are_healthy():
    assert levels(every_with_gpus(healthy())) == {"passed"}


@pytest.mark.parametrize(
    ("card", "architectures"),
    [
        ((8, 6), ("sm_80", "sm_90")),
        ((12, 0), ("sm_90", "compute_90")),
        ((10, 0), ("sm_90", "sm_100a")),
        ((9, 0), ("gfx942",)),
    ],
)
def test_machine_code_of_the_same_major_version_and_ptx_run(card, architectures):
    case = with_cuda(healthy(), architectures=architectures)
    case = with_inventory(case, gpus=(gpu(0, compute_capability=card),))
    assert levels(case) == {"passed"}


@pytest.mark.parametrize(
    ("card", "architectures"), [((8, 0), ("sm_86", "sm_90")), ((7, 5), ("sm_80", "compute_90"))]
)
def test_code_for_newer_cards_does_not(card, architectures):
    case = with_cuda(healthy(), architectures=architectures)
    case = with_inventory(case, gpus=(gpu(0, compute_capability=card),))
    assert "stops" in levels(case)


def test_two_nodes_with_other_nccl_are_both_named():
    case = with_cuda(healthy(), nccl="2.18.1")
    case = msgspec.structs.replace(case, nodes=case.nodes[:2])
    found = [one.node for one in examine(case) if one.check == "nccl-loaded"]
    assert levels(case) == {"stops", "passed"}
    assert sorted(found) == ["muthur", "wopr"]


@pytest.mark.parametrize("given", ["eno", "=eno1", "^docker", "wlan,eno1"])
def test_names_of_interfaces_are_read_as_nccl_does(given: str):
    assert levels(with_given(healthy(), NCCL_SOCKET_IFNAME=given)) == {"passed"}


@pytest.mark.parametrize("given", ["lo", "=eno", "eth"])
def test_names_that_lead_nowhere_stop_a_launch(given: str):
    assert "stops" in levels(with_given(healthy(), NCCL_SOCKET_IFNAME=given))


def test_a_jobs_own_variables_win_over_those_of_agents():
    case = with_variables(every_with_gpus(healthy()), {}, NCCL_ALGO="Tree")
    assert levels(with_given(case, NCCL_ALGO="Ring")) == {"passed"}


def test_a_job_without_gpus_does_not_need_cuda():
    case = with_cuda(healthy(), cuda=None, nccl="2.1")
    used = Participant(node="muthur", nproc=1)
    case = with_node(case, lambda node: msgspec.structs.replace(node, participant=used))
    assert levels(case) == {"passed"}
