"""Faults of belonging: nodes of other clusters, without one, or twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.e2e.conftest import GIVEN, invite, join
from tests.faults.search.case import Accept, Case, Channels, Moment, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import clock_ahead
from tests.faults.search.mechanisms.truths import LOST_S, any_silence, of_member
from tests.faults.search.vocabulary import (
    AGENT_GONE,
    CLOCK_OFF,
    NODE_ID_TWICE,
    NODE_LOST,
    NOT_AN_AGENT,
    NOT_JOINED,
    NOT_TRUSTED,
    OTHER_AUTHORITY,
    REJOINED,
    SILENT_NODE,
    WRONG_CLUSTER,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


MOMENTS: tuple[Moment, ...] = ("steps", "launch")


DAY_S = 86_400


def _foreign(setting: Setting) -> Drawn:
    """The node belongs to another cluster now: of the same name, or of another."""
    same = setting.chance.random() < 0.5
    kinds = OTHER_AUTHORITY if same else WRONG_CLUSTER
    return Drawn(of_member(setting, kinds), {"cluster": "lab" if same else "elsewhere"})


@contextmanager
def _join_other(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    with stage.other_state(case.guilty) as state:
        shutil.rmtree(state)
        # Whoever took the machine away makes a cluster of their own on it.
        token = invite(host, stage.mntrain, "--uses", "1", cluster=parameters["cluster"])
        join(host, stage.mntrain, token, *GIVEN)
        yield
    stage.spoil()


def _emptied(setting: Setting) -> Drawn:
    return Drawn(of_member(setting, NOT_JOINED, AGENT_GONE))


@contextmanager
def _empty(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Its state directory is gone when the agent starts again."""
    with stage.other_state(case.guilty) as state:
        shutil.rmtree(state)
        stage.start_agent(case.guilty)
        yield


def _rejoined(setting: Setting) -> Drawn:
    channels: Channels = frozenset({"node", "cause", "stall", "other", "launch"})
    accept = Accept(REJOINED, nodes=frozenset({setting.guilty}), channels=channels)
    return Drawn(Truth((accept,), within_s=LOST_S))


@contextmanager
def _rejoin(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """The node forgets everything, and joins the same cluster again while its job runs."""
    stage.spoil()
    host = stage.host(case.guilty)
    stage.kill_agent(case.guilty)
    shutil.rmtree(stage.state(case.guilty))
    token = invite(stage.host("node3"), stage.mntrain, "--uses", "1")
    join(host, stage.mntrain, token, *GIVEN)
    yield


def _copied(setting: Setting) -> Drawn:
    """The machine is a copy of another node."""
    names = frozenset(setting.layout.names)
    channels: Channels = frozenset({"node", "launch"})
    accept = Accept(NODE_ID_TWICE, AGENT_GONE | SILENT_NODE | NOT_TRUSTED, names, channels=channels)
    lost = Accept(NODE_LOST, nodes=names)
    return Drawn(
        Truth((accept,), may=(lost,), is_harmless=setting.moment == "steps", within_s=LOST_S)
    )


@contextmanager
def _copy(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with stage.other_state(case.guilty) as state:
        shutil.rmtree(state)
        stage.copy_state(stage.state(case.other), state)
        shutil.rmtree(state / "jobs", ignore_errors=True)
        stage.start_agent(case.guilty)
        yield
    stage.spoil()


def _squatted(setting: Setting) -> Drawn:
    return Drawn(of_member(setting, NOT_AN_AGENT, AGENT_GONE))


@contextmanager
def _squat(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Another program has the agent's port when the agent is gone."""
    stage.kill_agent(case.guilty)
    host = stage.host(case.guilty)
    other = host.popen(
        [sys.executable, "-m", "http.server", "8765"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    other.kill()
    other.wait()
    stage.start_agent(case.guilty)


def _late_join(setting: Setting) -> Drawn:
    """A machine joins whose clock is ahead: its own clock is wrong, not the invitation."""
    channels: Channels = frozenset({"command"})
    accept = Accept(CLOCK_OFF, channels=channels)
    return Drawn(
        Truth((accept,), may=any_silence(), within_s=LOST_S),
        {"off_s": setting.chance.choice((3 * DAY_S, 2 * 3600, 40 * DAY_S))},
    )


@contextmanager
def _join_ahead(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    token = invite(stage.host("node3"), stage.mntrain, "--uses", "1")
    environment = clock_ahead(stage.host(case.guilty).home, parameters["off_s"])
    stage.try_join(case.guilty, token, environment)
    yield


def _bad_token(setting: Setting) -> Drawn:
    how = setting.chance.choice(("cut", "another character", "used up"))
    channels: Channels = frozenset({"command"})
    kinds = NOT_TRUSTED | frozenset({"not-allowed"})
    accept = Accept(kinds, frozenset({"no-answer", "error"}), channels=channels)
    return Drawn(Truth((accept,), may=any_silence(), within_s=LOST_S), {"how": how})


@contextmanager
def _join_badly(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    token = invite(stage.host("node3"), stage.mntrain, "--uses", "1")
    if parameters["how"] == "cut":
        token = token[:-3]
    elif parameters["how"] == "another character":
        place = len(token) - 9
        token = token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :]
    else:
        stage.try_join("node3", token, {})
        stage.said.clear()
    stage.try_join(case.guilty, token, {})
    yield


BELONGING: tuple[Mechanism, ...] = (
    Mechanism("another cluster's node", "trust", _foreign, _join_other, MOMENTS, weight=2),
    Mechanism("an empty state directory", "trust", _emptied, _empty, MOMENTS, weight=2),
    Mechanism("a node that joins again", "trust", _rejoined, _rejoin, spoils=True, weight=2),
    Mechanism("a copied machine", "trust", _copied, _copy, MOMENTS, weight=1),
    Mechanism("another program on the agent's port", "trust", _squatted, _squat, MOMENTS, weight=2),
    Mechanism("a clock ahead at joining", "trust", _late_join, _join_ahead),
    Mechanism("a token that is not valid", "trust", _bad_token, _join_badly, weight=1),
)
