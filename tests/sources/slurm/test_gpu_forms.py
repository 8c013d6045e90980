"""GPU forms: every form that SLURM takes or writes, of 22.05 and of 24.11."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.sources.slurm.slurm_options import AskedGpus, asked_gpus, said_gpus

KINDS = st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True).filter(
    lambda kind: (
        kind not in ("gpu", "mps", "shard", "nic", "cpu", "mem", "node", "billing")
        and kind != "craynetwork"
    )
)
NUMBERS = st.integers(1, 9999)
DETAILS = st.sampled_from(["", "(S:0-1)", "(IDX:0-3)", "(IDX:0,2-3)", "(IDX:N/A)"])


def count_of(text: str) -> int:
    return sum(one.number for one in said_gpus(text))


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("4", "--gpus-per-node=4"),
        ("gpu:4", "--gres=gpu:4"),
        ("gpu:a100:4", "--gres=gpu:a100:4"),
        ("a100:4", "--gpus-per-node=a100:4"),
        (" 4 ", "--gpus-per-node=4"),
    ],
)
def test_the_form_chooses_the_option(text: str, option: str) -> None:
    gpus = asked_gpus(text)
    assert gpus is not None
    assert gpus.option == option


@given(NUMBERS, st.one_of(st.just(""), KINDS), st.booleans())
def test_whatever_is_asked_for_is_read_as_it_was_meant(
    number: int, kind: str, is_gres: bool
) -> None:
    text = ":".join(["gpu"] * is_gres + [kind] * bool(kind) + [str(number)])
    assert asked_gpus(text) == AskedGpus(number, kind, is_gres)


@pytest.mark.parametrize("text", ["", "  ", "0"])
def test_none_are_none(text: str) -> None:
    assert asked_gpus(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("four", "-1", "4.5", "gpu:", "gpu:gpu:4", "gpu", "a100", "a100:0", "a:b:4", "4 --wrap"),
        *("４", "gpu:a100:99999", "a100:4,v100:4", "$(id):4", "gpu:a100=4"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SpecError) as raised:
        asked_gpus(text)
    assert raised.value.fix
    assert "\n" not in str(raised.value)


@given(st.text(max_size=30))
def test_no_text_becomes_another_option(text: str) -> None:
    try:
        gpus = asked_gpus(text)
    except SpecError:
        return
    if gpus is not None:
        name, _, value = gpus.option.partition("=")
        assert name in ("--gpus-per-node", "--gres")
        assert value.isascii()
        assert not set(value) & set(" \t\n'\"$`;&|#")


@given(NUMBERS, st.one_of(st.just(""), KINDS), DETAILS, st.sampled_from(["gres:", "gres/", ""]))
def test_what_slurm_writes_of_gpus_is_read(
    number: int, kind: str, detail: str, prefix: str
) -> None:
    parts = [f"{prefix}gpu", *([kind] if kind else []), str(number)]
    assert count_of(":".join(parts) + detail) == number
    (said,) = said_gpus(":".join(parts) + detail)
    assert said.kind == kind


@given(st.lists(st.tuples(KINDS, NUMBERS), min_size=1, max_size=4))
def test_types_beside_their_total_count_once(types: list[tuple[str, int]]) -> None:
    total = sum(number for _, number in types)
    listed = ",".join(f"gres/gpu:{kind}={number}" for kind, number in types)
    assert count_of(listed) == total
    assert count_of(f"cpu=8,mem=4000M,node=1,billing=8,gres/gpu={total},{listed}") == total


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),  # SLURM_GPUS_PER_NODE echoes what was asked for
        ("a100:2", 2),
        ("gres:gpu:2", 2),  # tres_per_node of 22.05.8
        ("gres/gpu:3", 3),  # tres_per_node of 24.11.5
        ("gpu:a100:3(IDX:0-2)", 3),  # gres_detail of 24.11.5
        ("gpu:fake:4(IDX:0-3)", 4),  # gres_used of 22.05.8
        ("gpu:fake:4", 4),  # sinfo %G of 22.05.8
        ("gpu:a100:4,nic:1", 4),
        ("nic:1,mps:100", 0),
        ("gpu", 1),
        ("gpu:a100:2(S:0),gpu:v100:2(S:1)", 4),
        ("cpu=1,mem=4000M,node=1,billing=1", 0),
        ("(null)", 0),
        ("N/A", 0),
        ("", 0),
    ],
)
def test_recorded_forms(text: str, number: int) -> None:
    assert count_of(text) == number


@given(st.text(max_size=60))
def test_no_text_of_slurms_is_too_odd(text: str) -> None:
    assert count_of(text) >= 0
