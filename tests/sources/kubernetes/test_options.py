"""Options and resources: what is given, what nodes offer, and what cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.sources.kubernetes.options import Amount, check, gpus_of, object_name
from jupyter_mntrain.sources.kubernetes.resources import Offered, asked, offered
from tests.sources.kubernetes.requests import EVERYTHING, request


def node(**allocatable: str) -> dict[str, Any]:
    names = {"gpu": "nvidia.com/gpu", "amd": "amd.com/gpu", "mig": "nvidia.com/mig-1g.10gb"}
    names |= {"a": "rdma/hca_shared_devices_a", "b": "rdma/rdma_shared_device_ib"}
    told = {names.get(name, name): count for name, count in allocatable.items()}
    return {"status": {"allocatable": {"cpu": "64", "memory": "1Ti"} | told}}


@pytest.mark.parametrize(
    ("told", "number", "model"),
    [
        ("4", 4, ""),
        ("gpu:4", 4, ""),
        ("NVIDIA-H100-80GB-HBM3:8", 8, "NVIDIA-H100-80GB-HBM3"),
        ("gpu:a100:2", 2, "a100"),
        ("", 0, ""),
    ],
)
def test_gpus_are_given_in_any_form(told: str, number: int, model: str) -> None:
    assert gpus_of(request(gpus=told)) == (number, model)


def test_all_options_together_can_be_meant() -> None:
    check(request(**EVERYTHING))
    check(request(kind="trainjob", runtime="torch-distributed", image=""))


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"image": ""}, "PyTorch"),
        ({"gpus": "four"}, "MODEL:4"),
        ({"kind": "trainjob"}, "--runtime"),
        ({"kind": "trainjob", "runtime": "a", "pod_priority": "high"}, "runtime"),
        ({"kind": "job"}, "jobset"),
        ({"imagee": "x"}, "image"),
        ({"topology": "rack"}, "--local-queue"),
        ({"queue-priority": "low"}, "--local-queue"),
        ({"local-queue": "a", "topology": "rack", "near": "block"}, "one"),
        ({"local-queue": "Team A"}, "lower-case"),
        ({"memory": "lots"}, "unit"),
        ({"grace": "5"}, "checkpoint"),
        ({"rdma": "hca"}, "rdma/NAME"),
        ({"rdma": "rdma/a=many"}, "rdma/NAME"),
        ({"node": ("pool",)}, "NAME=VALUE"),
        ({"tolerate": ("gpu:Never",)}, "EFFECT"),
        ({"user": "me"}, "id -u"),
    ],
)
@pytest.mark.wording
def test_what_cannot_be_meant_is_one_line_with_its_fix(options: dict[str, Any], fix: str) -> None:
    with pytest.raises(SpecError) as raised:
        check(request(**options))
    assert fix in raised.value.fix
    assert "\n" not in str(raised.value)


def test_what_nodes_offer_is_the_most_that_one_of_them_has() -> None:
    nodes = [node(gpu="8", a="1k"), node(gpu="4", a="63"), node(gpu="0", amd="0"), {}]
    assert offered(nodes) == Offered({"nvidia.com/gpu": 8}, {"rdma/hca_shared_devices_a": 63})


def test_names_are_taken_from_the_nodes() -> None:
    amd = offered([node(amd="8", b="10")])
    asks = asked(request(gpus="MI300X:8", rdma="auto"), amd)
    assert asks.gpus == Amount("amd.com/gpu", 8)
    assert asks.rdma == Amount("rdma/rdma_shared_device_ib", 1)
    assert asks.model == {"amd.com/gpu.product-name": "MI300X"}
    parts = offered([node(gpu="8", mig="7")])
    assert asked(request(gpus="8"), parts).gpus == Amount("nvidia.com/gpu", 8)
    by_name = request(gpus="2", gpu_resource="nvidia.com/mig-1g.10gb")
    assert asked(by_name, parts).gpus == Amount("nvidia.com/mig-1g.10gb", 2)
    assert asked(request(gpus=""), parts) == (None, {}, None)


def test_a_name_that_is_given_needs_no_node() -> None:
    asks = asked(request(rdma="rdma/x=2", gpu_resource="lab.example/gpu"), None)
    assert asks.gpus == Amount("lab.example/gpu", 4)
    assert asks.rdma == Amount("rdma/x", 2)
    assert asked(request(), None).gpus == Amount("nvidia.com/gpu", 4)


@pytest.mark.parametrize(
    ("options", "nodes", "cause", "fix"),
    [
        ({"gpus": "9"}, [node(gpu="8")], "more than 8", "at most 8"),
        ({}, [node()], "no node offers GPUs", "administrators"),
        ({}, [node(gpu="4"), node(amd="8")], "amd.com/gpu", "--gpu-resource"),
        ({"gpu_resource": "amd.com/gpu"}, [node(gpu="8")], "amd.com/gpu", "nvidia.com/gpu"),
        ({"rdma": "auto"}, [node(gpu="8")], "RDMA", "TCP"),
        ({"rdma": "auto"}, [node(gpu="8", a="1", b="1")], "rdma_shared_device_ib", "--rdma"),
        ({"rdma": "rdma/x"}, [node(gpu="8", a="1")], "rdma/x", "rdma/hca_shared_devices_a"),
    ],
)
@pytest.mark.wording
def test_what_no_node_has_is_refused_with_what_there_is(
    options: dict[str, Any], nodes: list[dict[str, Any]], cause: str, fix: str
) -> None:
    with pytest.raises(SpecError) as raised:
        asked(request(**options), offered(nodes))
    assert cause in raised.value.cause
    assert fix in raised.value.fix


@given(st.text())
def test_names_of_objects_leave_room_for_the_names_of_their_pods(name: str) -> None:
    made = object_name(request(name=name), "7f3a9c")
    assert made.endswith("-7f3a9c")
    assert len(f"{made}-node-0-1023-xxxxx") <= 63
    assert made[0].isalpha()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
