"""Scorer: what is right, partly right, wrong, silent, and a false alarm."""

from __future__ import annotations

import pytest

from tests.faults.search.case import Accept, Statement, Truth
from tests.faults.search.scoring import score

KINDS, VAGUE = frozenset({"killed"}), frozenset({"exit-code"})
GUILTY = Truth((Accept(KINDS, VAGUE, frozenset({"node2"}), frozenset({1})),))
HARMLESS = Truth(is_harmless=True, states=frozenset({"running"}))


def says(kind="killed", node="node2", rank=1, channel="cause", **more):
    return Statement(channel, kind, node, rank, more.pop("has_fix", True), **more)


@pytest.mark.parametrize(
    ("said", "judged"),
    [
        ([says()], "right"),
        ([says(has_fix=False)], "partly"),
        ([says("exit-code")], "partly"),
        ([says(rank=None)], "partly"),
        ([says(node=None)], "partly"),
        ([says(rank=0)], "wrong"),
        ([says(node="node1")], "wrong"),
        ([says("exception")], "wrong"),
        ([says("exit-code", node="node1")], "wrong"),
        ([], "silent"),
        ([says("no-progress", None, None, "stall")], "unknown"),
        ([says("no-progress", None, None, "stall"), says("silent", channel="node")], "unknown"),
        # What is read first decides.
        ([says("link-down", channel="stall"), says()], "right"),
        ([says("all-wait", None, None), says(channel="other")], "wrong"),
        ([says("connection-lost", "node1", 0), says(channel="node")], "wrong"),
    ],
)
def test_a_fault_is_named_or_not(said, judged):
    assert score(GUILTY, said) == judged


def test_a_harmless_fault_asks_for_silence():
    assert score(HARMLESS, [], "running") == "right"
    assert score(HARMLESS, [], "failed") == "wrong"
    assert score(HARMLESS, [says()], "running") == "false alarm"
    assert score(HARMLESS, [says("no-progress", None, None, "stall")], "running") == "right"


def test_of_two_faults_one_may_also_be_called_what_the_other_is():
    either = Accept(KINDS, nodes=frozenset({"node1", "node2"}))
    assert score(Truth(GUILTY.accepts, may=(either,)), [says()]) == "right"
    assert score(Truth(GUILTY.accepts, may=(either,)), [says(node="node1")]) == "silent"


def test_what_is_true_as_well_neither_helps_nor_harms():
    lost = Accept(
        frozenset({"no-answer"}), nodes=frozenset({"node2"}), channels=frozenset({"node"})
    )
    node_says = says("no-answer", rank=None, channel="node")
    guilty = Truth(GUILTY.accepts, may=(lost,))
    assert score(guilty, [node_says]) == "silent"
    assert score(guilty, [node_says, says()]) == "right"
    harmless = Truth(is_harmless=True, may=(lost,))
    assert score(harmless, [node_says]) == "right"


def test_a_job_that_goes_on_may_need_a_word_about_it():
    slow = Truth((Accept(frozenset({"straggler"}), ranks=frozenset({1})),), is_harmless=True)
    assert score(slow, []) == "silent"
    assert score(slow, [says("straggler", channel="other")]) == "right"
    assert score(slow, [says("link-down", channel="stall")]) == "false alarm"


def test_the_state_and_the_exit_code_count():
    stuck = Truth(GUILTY.accepts, states=frozenset({"failed"}))
    assert score(stuck, [says()], "stopping") == "wrong"
    assert score(stuck, [says()], "failed") == "right"
    asked = Truth(GUILTY.accepts, enough=frozenset({"canceled"}))
    assert score(asked, [], "canceled") == "right"
    assert score(asked, [], "stopping") == "silent"
    assert score(asked, [says(node="node1")], "canceled") == "wrong"
    numbered = Truth(GUILTY.accepts, exit_code=77)
    assert score(numbered, [says(exit_code=1)]) == "partly"
    assert score(numbered, [says(exit_code=77)]) == "right"
