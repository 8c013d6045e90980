"""Panel choices and the equivalent command."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.plan.members import parse_member
from jupyter_mntrain.verbs.panel.choices import Choices, NodeChoice, launch_words, member_text


@pytest.mark.parametrize(
    ("gpus", "interface", "text"),
    [
        ("", None, "a"),
        ("2", None, "a:2"),
        ("", "eth1", "a::eth1"),
        ("gpu1", None, "a:gpu1"),
        ("0, 2", "eth1", "a:gpu0,2:eth1"),
        ("GPUs 0,1", None, "a:gpu0,1"),
    ],
)
def test_a_row_is_a_member_of_a_launch(gpus: str, interface: str | None, text: str) -> None:
    assert member_text("a", NodeChoice(gpus=gpus, interface=interface)) == text
    assert parse_member(text).node == "a"


@given(st.text(max_size=12))
def test_whatever_stands_in_the_gpus_field_is_a_member_or_one_clean_line(text: str) -> None:
    with contextlib.suppress(SpecError):
        member = parse_member(member_text("a", NodeChoice(gpus=text)))
        assert (member.node, member.interface) == ("a", None)


def test_choices_become_the_words_of_launch() -> None:
    chosen = Choices(
        port="29500",
        schedule="gpipe",
        microbatches=4,
        changes='train.steps=5 model.preset="llama-8m"',
        environment="A=1 B='two words'",
        restart="failed or stalled",
    )
    assert launch_words(chosen, ["a:2", "b"], head="b", target="r.toml") == [
        "r.toml", "--member", "a:2", "--member", "b", "--head", "b", "--port", "29500",
        "--restarts", "3", "--on-stall", "abort", "--env", "A=1", "--env", "B=two words",
        "--set", 'pipeline.schedule="gpipe"', "--set", "pipeline.microbatches=4",
        "--set", "train.steps=5", "--set", "model.preset=llama-8m",
    ]  # fmt: skip
