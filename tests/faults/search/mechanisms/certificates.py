"""Faults of certificates and clocks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_mntrain.trust.authority import CLOCK_ALLOWANCE, Authority
from jupyter_mntrain.trust.certificates import load_certificate, load_key, pem_of
from tests.e2e.conftest import CLUSTER
from tests.faults.search.case import Case, Moment, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import clock_ahead
from tests.faults.search.mechanisms.truths import any_silence, of_member
from tests.faults.search.vocabulary import (
    AGENT_GONE,
    CLOCK_OFF,
    EXPIRED,
    NOT_JOINED,
    REVOKED,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


MOMENTS: tuple[Moment, ...] = ("steps", "launch")


DAY_S = 86_400


_KEY_END = "-----END PRIVATE KEY-----\n"


def _revoked(setting: Setting) -> Drawn:
    return Drawn(of_member(setting, REVOKED))


@contextmanager
def _revoke(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.spoil()
    stage.command("command", "revoke", case.guilty)
    yield


def _expired(setting: Setting) -> Drawn:
    return Drawn(
        of_member(setting, EXPIRED), {"ago_s": setting.chance.choice((60, DAY_S, 40 * DAY_S))}
    )


@contextmanager
def _expire(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """As a machine that was off for a year."""
    with stage.other_state(case.guilty) as state:
        _sign_again(stage, state, -parameters["ago_s"] - 9 * DAY_S, -parameters["ago_s"])
        stage.start_agent(case.guilty)
        yield


def _too_early(setting: Setting) -> Drawn:
    return Drawn(
        of_member(setting, CLOCK_OFF), {"ahead_s": setting.chance.choice((2 * DAY_S, 300 * DAY_S))}
    )


@contextmanager
def _sign_ahead(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Signed by a driver whose clock was ahead."""
    with stage.other_state(case.guilty) as state:
        _sign_again(stage, state, parameters["ahead_s"], parameters["ahead_s"] + 365 * DAY_S)
        stage.start_agent(case.guilty)
        yield


def _sign_again(stage: Stage, state: Path, first_s: float, last_s: float) -> None:
    """Another certificate for the same key, valid from and until then, relative to now."""
    cluster = stage.host("node3").home / ".config" / "mntrain" / "clusters" / CLUSTER
    own = state / "own.pem"
    key, end, old = own.read_text().partition(_KEY_END)
    signer = Authority(
        load_key((cluster / "authority.key").read_bytes()),
        load_certificate((cluster / "trusted.pem").read_text()),
    )
    made = signer.renew(
        load_certificate(old),
        now=datetime.now(UTC) + timedelta(seconds=first_s) + CLOCK_ALLOWANCE,
        lifetime=timedelta(seconds=last_s - first_s) - CLOCK_ALLOWANCE,
    )
    own.write_text(key + end + pem_of(made))


def _clock(setting: Setting) -> Drawn:
    """The agent's clock is off; certificates seem to be from the future, or from the past."""
    off_s = setting.chance.choice((-3 * DAY_S, -400 * DAY_S, 400 * DAY_S, 4000 * DAY_S))
    return Drawn(of_member(setting, CLOCK_OFF, EXPIRED), {"off_s": off_s})


@contextmanager
def _set_clock(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    environment = clock_ahead(stage.host(case.guilty).home, parameters["off_s"])
    stage.kill_agent(case.guilty, signal.SIGTERM)
    stage.start_agent(case.guilty, **environment)
    yield
    with suppress(ValueError):
        stage.kill_agent(case.guilty)
    stage.start_agent(case.guilty)


def _small_clock(setting: Setting) -> Drawn:
    """An hour or so is of no consequence."""
    truth = Truth(is_harmless=True, states=frozenset({"running"}), may=any_silence())
    return Drawn(truth, {"off_s": setting.chance.choice((-7200, -600, 600, 7200))})


def _no_key(setting: Setting) -> Drawn:
    how = setting.chance.choice(("gone", "damaged", "empty"))
    return Drawn(of_member(setting, AGENT_GONE | NOT_JOINED), {"how": how})


@contextmanager
def _spoil_key(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with stage.other_state(case.guilty) as state:
        own = state / "own.pem"
        if parameters["how"] == "gone":
            own.unlink()
        elif parameters["how"] == "damaged":
            own.write_bytes(own.read_bytes()[:200])
        else:
            own.write_bytes(b"")
        stage.start_agent(case.guilty)
        yield


CERTIFICATES: tuple[Mechanism, ...] = (
    Mechanism("a revoked node", "trust", _revoked, _revoke, MOMENTS, weight=2),
    Mechanism("an expired certificate", "trust", _expired, _expire, MOMENTS, weight=3),
    Mechanism("a certificate of tomorrow", "trust", _too_early, _sign_ahead, MOMENTS, weight=2),
    Mechanism("a clock far off", "trust", _clock, _set_clock, MOMENTS, weight=3),
    Mechanism("a clock somewhat off", "trust", _small_clock, _set_clock, weight=1),
    Mechanism("a key that cannot be used", "trust", _no_key, _spoil_key, MOMENTS, weight=2),
)
