"""Version check: which node differs."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.software.versions import (
    Divergence,
    divergences,
    refuse_mixed,
    version_notes,
    version_problem,
)
from tests.standin.nodes import node
from tests.wording import says


def with_versions(name: str, **versions: str | None) -> NodeInfo:
    return node(name, versions=versions)


def test_nodes_that_agree() -> None:
    assert divergences([with_versions(n, torch="2.13.0") for n in "abc"]) == ()
    assert divergences([]) == ()
    assert divergences([with_versions("a", torch="2.13.0")]) == ()


def test_the_one_against_the_majority() -> None:
    nodes = [with_versions(n, torch=v) for n, v in zip("abc", ("2.13", "2.9", "2.13"), strict=True)]
    assert divergences(nodes) == (Divergence(node="b", key="torch", value="2.9", majority="2.13"),)


def test_without_a_majority_everybody_is_named() -> None:
    nodes = [with_versions("a", torch="2.13"), with_versions("b", torch="2.9")]
    assert divergences(nodes) == (
        Divergence(node="a", key="torch", value="2.13", majority=None),
        Divergence(node="b", key="torch", value="2.9", majority=None),
    )


def test_torch_missing_is_a_divergence_a_driver_missing_is_not() -> None:
    nodes = [
        with_versions("a", torch="2.13", driver="580.1", cuda="13.0", nccl="2.28"),
        with_versions("b", torch="2.13", driver="580.1", cuda="13.0", nccl="2.28"),
        with_versions("c", torch=None, driver=None, cuda=None, nccl=None),
    ]
    assert divergences(nodes) == (Divergence(node="c", key="torch", value=None, majority="2.13"),)


def test_the_odd_one_where_the_others_have_none() -> None:
    nodes = [with_versions("a"), with_versions("b"), with_versions("c", transformers="5.0")]
    (found,) = divergences(nodes)
    assert (found.node, found.key, found.value) == ("c", "transformers", "5.0")
    assert says("not installed", found.majority or "")


def test_python_differs_by_its_minor_version_only() -> None:
    nodes = [with_versions("a", python="3.11.7"), with_versions("b", python="3.11.9")]
    assert divergences(nodes) == ()
    nodes.append(with_versions("c", python="3.12.1"))
    assert divergences(nodes) == (
        Divergence(node="c", key="python", value="3.12.1", majority="3.11"),
    )


def test_a_refusal_of_mixed_versions_has_their_kind() -> None:
    with pytest.raises(SpecError) as refused:
        refuse_mixed([with_versions("a", torch="2.13"), with_versions("b", torch="2.9")])
    assert refused.value.kind is Kind.MIXED_VERSIONS


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [("platform", "x86_64 linux", "aarch64 linux"), ("cuda", "12.8.90", "13.0.1")],
)
def test_other_processors_and_other_builds_are_refused(key: str, first: str, second: str) -> None:
    nodes = [with_versions("a", **{key: first}), with_versions("b", **{key: second})]
    with pytest.raises(SpecError) as refused:
        refuse_mixed(nodes)
    assert refused.value.kind is Kind.MIXED_VERSIONS
    assert first in refused.value.cause
    assert second in refused.value.cause


def test_builds_that_differ_by_a_patch_agree_and_a_node_without_cuda_is_not_compared() -> None:
    nodes = [with_versions("a", cuda="12.8.90"), with_versions("b", cuda="12.8.93")]
    refuse_mixed([*nodes, with_versions("c")])


def test_the_cpu_build_of_one_release_fits_a_node_without_a_gpu_and_no_other() -> None:
    gpus = with_versions("a", torch="2.9.0+cu128", cuda="12.8", nccl="2.28", driver="580.1")
    refuse_mixed([gpus, with_versions("b", torch="2.9.0+cpu"), with_versions("c", torch="2.9.0")])
    for other in (
        with_versions("b", torch="2.8.0+cpu"),
        with_versions("b", torch="2.9.0+cpu", driver="580.1"),
        with_versions("b", torch="2.9.0+rocm6.4"),
        with_versions("b", torch="2.9.0+cu130", cuda="13.0", nccl="2.28", driver="580.1"),
        with_versions("b", torch="2.9.0+cpu", platform="aarch64 linux"),
    ):
        with pytest.raises(SpecError) as refused:
            refuse_mixed([gpus, other])
        assert refused.value.kind is Kind.MIXED_VERSIONS


def test_what_was_acknowledged_is_said_with_what_differs() -> None:
    nodes = [with_versions("a", torch="2.13"), with_versions("b", torch="2.9")]
    (own,), (taken,) = (
        version_notes(nodes, is_acknowledged=True, taken_over=over) for over in (False, True)
    )
    assert (own.kind, taken.kind) == (Kind.MIXED_VERSIONS, Kind.MIXED_VERSIONS)
    assert own.cause != taken.cause
    assert "2.9" in own.cause
    assert version_notes(nodes[:1], is_acknowledged=True, taken_over=True) == ()


@pytest.mark.parametrize(
    "versions",
    [
        {"transformers": ("5.1.0", "5.1.2", "5.1.0")},
        {"driver": ("570.1", "580.1", "570.1")},
        {"transformers": ("5.1.0", "5.1.2", "5.1.2"), "driver": ("570.1", "580.1", "580.2")},
    ],
)
def test_drivers_and_patches_of_transformers_are_only_told(
    versions: dict[str, tuple[str, ...]],
) -> None:
    each = [{key: values[at] for key, values in versions.items()} for at in range(3)]
    nodes = [with_versions(name, **one) for name, one in zip("abc", each, strict=True)]
    refuse_mixed(nodes)
    assert {one.key for one in divergences(nodes)} == set(versions)
    assert all(one.is_harmless for one in divergences(nodes))
    (told,) = version_notes(nodes, is_acknowledged=False)
    assert all(key in told.cause for key in versions)


def test_another_minor_version_of_transformers_is_refused_and_a_whole_one_is_named() -> None:
    every = ("5.1.0", "5.1.2", "5.1.2", "5.2.0")
    nodes = [with_versions(n, transformers=v) for n, v in zip("abcd", every, strict=True)]
    (found,) = divergences(nodes)
    assert (found.node, found.value, found.majority) == ("d", "5.2.0", "5.1.2")
    with pytest.raises(SpecError) as refused:
        refuse_mixed(nodes)
    assert "5.1.2" in str(refused.value.fix)


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("mntrain", "0.1.0", "0.1.1"),
        ("torch", "2.13.0", "2.13.1"),
        ("nccl", "2.28.3", "2.28.4"),
        ("python", "3.11.7", "3.12.0"),
        ("transformers", "5.1.0", None),
    ],
)
def test_what_must_agree_is_refused(key: str, first: str, second: str | None) -> None:
    nodes = [with_versions("a", **{key: first}), with_versions("b", **{key: second})]
    with pytest.raises(SpecError):
        refuse_mixed(nodes)


def test_what_most_nodes_do_not_have_is_not_to_be_installed() -> None:
    nodes = [with_versions("a"), with_versions("b"), with_versions("c", transformers="5.0")]
    assert "pip" not in version_problem(divergences(nodes)[0]).fix


@pytest.mark.wording
def test_a_launch_refuses_what_must_agree_and_names_node_versions_and_fix() -> None:
    nodes = [with_versions(n, torch=v) for n, v in zip("abc", ("2.13", "2.9", "2.13"), strict=True)]
    with pytest.raises(SpecError) as refused:
        refuse_mixed(nodes)
    assert refused.value.cause == "b has torch 2.9, the others have 2.13"
    assert str(refused.value.fix).startswith("pip install torch==2.13 on b; or")
    with pytest.raises(SpecError) as refused:
        refuse_mixed(nodes[:2])
    assert refused.value.cause == "torch differs between nodes: 2.13 on a, 2.9 on b"
    assert str(refused.value.fix).startswith("install the same version on every node; or")
    refuse_mixed([with_versions("a", driver="570"), with_versions("b", driver="580")])
