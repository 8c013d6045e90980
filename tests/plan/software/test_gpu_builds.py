"""GPU builds: a torch that cannot use the GPUs is refused before the launch."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.software.gpu_builds import (
    gpu_build_problem,
    refuse_gpu_builds,
    refuse_leased_builds,
    unused_amd_note,
)
from tests.standin.nodes import gpu, node
from tests.wording import says


def with_gpus(name: str, **versions: str | None) -> NodeInfo:
    basis = {"torch": "2.13.0", "cuda": "13.0", "driver": "580.65", "driver_cuda": "13.0"}
    return node(name, gpus=(gpu(0), gpu(1, name="RTX 3090")), versions=basis | versions)


@pytest.mark.parametrize(
    ("cuda", "driver", "driver_cuda", "is_refused"),
    [
        ("13.0", "575.57", "12.9", True),
        ("12.8", "470.1", "11.4", True),
        ("13.0", "580.65", "13.0", False),
        # One driver runs every minor version of its CUDA, and all older ones.
        ("13.2", "580.65", "13.0", False),
        ("12.9", "525.1", "12.0", False),
        ("12.8", "580.65", "13.0", False),
        # It does not say, but its own number does.
        ("13.0", "575.57", None, True),
        ("12.8", "575.57", None, False),
        ("11.8", "440.1", None, True),
        # Its CUDA library is a newer one, for compatibility.
        ("13.0", "570.1", "13.0", False),
        # Nothing is known.
        (None, "570.1", "12.8", False),
        ("13.0", None, None, False),
    ],
)
def test_a_driver_older_than_torchs_cuda_is_refused(
    cuda: str | None, driver: str | None, driver_cuda: str | None, is_refused: bool
) -> None:
    one = with_gpus("a", cuda=cuda, driver=driver, driver_cuda=driver_cuda)
    found = gpu_build_problem(one, (0,))
    assert (found is not None) == is_refused
    if found is not None:
        assert found.kind is Kind.OLD_DRIVER


@pytest.mark.wording
def test_the_refusal_names_node_card_driver_and_both_ways_out() -> None:
    old = with_gpus("b", driver="570.1", driver_cuda="12.8")
    with pytest.raises(SpecError) as refused:
        refuse_gpu_builds([(with_gpus("a"), (0, 1)), (old, (1,))])
    assert refused.value.node == "b"
    assert refused.value.cause == (
        "driver 570.1 of GPU 1 (RTX 3090) is for CUDA 12.8 and older, but torch 2.13.0 is built "
        "for CUDA 13.0"
    )
    assert refused.value.fix == (
        "update the NVIDIA driver of b to 580 or newer, or install a torch built for CUDA 12 on "
        "every node"
    )
    newer = gpu_build_problem(with_gpus("a", cuda="14.1"), (0,))
    assert newer is not None
    assert "update the NVIDIA driver of a to one for CUDA 14, or" in newer.fix


@pytest.mark.parametrize(("built_for", "word"), [("ROCm", "AMD GPUs (ROCm)"), ("XPU", "Intel")])
def test_a_torch_for_other_cards_is_refused_with_their_name(built_for: str, word: str) -> None:
    other = with_gpus("a", torch="2.13.0", cuda=None, built_for=built_for)
    with pytest.raises(SpecError) as refused:
        refuse_gpu_builds([(other, (0,))])
    assert refused.value.kind is Kind.NO_CUDA
    assert refused.value.node == "a"
    assert says(word, refused.value.cause)
    refuse_gpu_builds([(other, ())])


def test_amd_cards_that_a_job_leaves_alone_are_said_with_their_nodes() -> None:
    def with_amd(one: NodeInfo) -> NodeInfo:
        inventory = msgspec.structs.replace(one.inventory, has_amd_gpu=True)
        return msgspec.structs.replace(one, inventory=inventory)

    both = [(with_amd(node("a")), ()), (with_amd(with_gpus("b")), (0,)), (node("c"), ())]
    note = unused_amd_note(both)
    assert note is not None
    assert says("AMD", note.cause)
    assert says("the CPU of a", note.cause)
    assert unused_amd_note(both[1:]) is None


def test_a_node_that_gives_no_gpus_may_have_any_driver() -> None:
    old = with_gpus("a", driver="470.1", driver_cuda="11.4")
    refuse_gpu_builds([(old, ())])
    refuse_leased_builds([("a", old.inventory.versions, ())])
    with pytest.raises(SpecError):
        refuse_leased_builds([("a", old.inventory.versions, (0,))])
