"""Faults of trust: certificates, authorities, clocks and states that belong to others."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.conftest import GIVEN, invite, join
from tests.faults.search.case import Accept, Case, Channel, Moment, Truth
from tests.faults.search.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.vocabulary import (
    AGENT_GONE,
    CLOCK_OFF,
    EXPIRED,
    NODE_ID_TWICE,
    NODE_LOST,
    NOT_AN_AGENT,
    NOT_JOINED,
    NOT_TRUSTED,
    OTHER_AUTHORITY,
    REJOINED,
    REVOKED,
    SILENT_NODE,
    WRONG_CLUSTER,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

LOST_S = 20.0
MOMENTS: tuple[Moment, ...] = ("steps", "launch")
CLOCK = Path(__file__).parents[2] / "netlab" / "clock.c"
DAY_S = 86_400


def _of_node(setting: Setting, kinds: frozenset[str], vague: frozenset[str] = frozenset()) -> Truth:
    """Said of the node, or where a launch is refused because of it; a job goes on without it."""
    channels: frozenset[Channel] = frozenset({"node", "launch"})
    accept = Accept(kinds, vague | SILENT_NODE, frozenset({setting.guilty}), channels=channels)
    lost = Accept(NODE_LOST, nodes=frozenset({setting.guilty}))
    return Truth((accept,), is_harmless=setting.moment == "steps", may=(lost,), within_s=LOST_S)


def _revoked(setting: Setting) -> Drawn:
    return Drawn(_of_node(setting, REVOKED))


@contextmanager
def _revoke(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.spoil()
    stage.command("command", "revoke", case.guilty)
    yield


def _expired(setting: Setting) -> Drawn:
    return Drawn(
        _of_node(setting, EXPIRED), {"ago_s": setting.chance.choice((60, DAY_S, 40 * DAY_S))}
    )


@contextmanager
def _expire(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """As a machine that was off for a year."""
    with stage.other_state(case.guilty) as state:
        _sign_again(stage, state, -parameters["ago_s"] - DAY_S, -parameters["ago_s"])
        stage.start_agent(case.guilty)
        yield


def _too_early(setting: Setting) -> Drawn:
    return Drawn(
        _of_node(setting, CLOCK_OFF), {"ahead_s": setting.chance.choice((2 * DAY_S, 300 * DAY_S))}
    )


@contextmanager
def _sign_ahead(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Signed by a driver whose clock was ahead."""
    with stage.other_state(case.guilty) as state:
        _sign_again(stage, state, parameters["ahead_s"], parameters["ahead_s"] + 365 * DAY_S)
        stage.start_agent(case.guilty)
        yield


_SIGN = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

own, found, first_s, last_s = sys.argv[1:]
text = Path(own).read_text()
end = "-----END PRIVATE KEY-----\\n"
key, certificate = text.split(end)
old = x509.load_pem_x509_certificate(certificate.encode())
authority = None
for path in Path(found).rglob("*.pem"):
    raw = path.read_text()
    if end not in raw:
        continue
    loaded = serialization.load_pem_private_key((raw.split(end)[0] + end).encode(), None)
    shown = x509.load_pem_x509_certificate(raw.split(end)[1].encode())
    if shown.subject == old.issuer:
        authority = loaded
assert authority is not None, "no authority there"
now = datetime.now(UTC)
made = (
    x509.CertificateBuilder()
    .subject_name(old.subject)
    .issuer_name(old.issuer)
    .public_key(old.public_key())
    .serial_number(x509.random_serial_number())
    .not_valid_before(now + timedelta(seconds=float(first_s)))
    .not_valid_after(now + timedelta(seconds=float(last_s)))
)
for extension in old.extensions:
    made = made.add_extension(extension.value, extension.critical)
pem = made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
Path(own).write_text(key + end + pem)
"""


def _sign_again(stage: Stage, state: Path, first_s: float, last_s: float) -> None:
    """Another certificate for the same key, valid from and until then, relative to now."""
    authority = stage.host("node3").home
    words = [str(state / "own.pem"), str(authority), str(first_s), str(last_s)]
    subprocess.run([sys.executable, "-c", _SIGN, *words], check=True)


def _clock(setting: Setting) -> Drawn:
    """The agent's clock is off; certificates seem to be from the future, or from the past."""
    off_s = setting.chance.choice((-3 * DAY_S, -400 * DAY_S, 400 * DAY_S, 4000 * DAY_S))
    return Drawn(_of_node(setting, CLOCK_OFF, EXPIRED), {"off_s": off_s})


@contextmanager
def _set_clock(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    home = stage.host(case.guilty).home
    library, ahead = home / "clock.so", home / "ahead"
    if not library.exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    ahead.write_text(str(parameters["off_s"]))
    stage.kill_agent(case.guilty, signal.SIGTERM)
    stage.start_agent(case.guilty, LD_PRELOAD=str(library), CLOCK_AHEAD=str(ahead))
    yield
    stage.kill_agent(case.guilty)
    stage.start_agent(case.guilty)


def _small_clock(setting: Setting) -> Drawn:
    """An hour or so is of no consequence."""
    truth = Truth(is_harmless=True, states=frozenset({"running"}), may=_any_silence())
    return Drawn(truth, {"off_s": setting.chance.choice((-7200, -600, 600, 7200))})


def _any_silence() -> tuple[Accept, ...]:
    channels: frozenset[Channel] = frozenset({"node"})
    return (Accept(AGENT_GONE | SILENT_NODE, channels=channels),)


def _foreign(setting: Setting) -> Drawn:
    """The node belongs to another cluster now: of the same name, or of another."""
    same = setting.chance.random() < 0.5
    kinds = OTHER_AUTHORITY if same else WRONG_CLUSTER
    return Drawn(_of_node(setting, kinds), {"cluster": "lab" if same else "elsewhere"})


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
    return Drawn(_of_node(setting, NOT_JOINED, AGENT_GONE))


@contextmanager
def _empty(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Its state directory is gone when the agent starts again."""
    with stage.other_state(case.guilty) as state:
        shutil.rmtree(state)
        stage.start_agent(case.guilty)
        yield


def _rejoined(setting: Setting) -> Drawn:
    channels: frozenset[Channel] = frozenset({"node", "cause", "stall", "other", "launch"})
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
    channels: frozenset[Channel] = frozenset({"node", "launch"})
    accept = Accept(NODE_ID_TWICE, AGENT_GONE | SILENT_NODE | NOT_TRUSTED, names, channels=channels)
    lost = Accept(NODE_LOST, nodes=names)
    return Drawn(
        Truth((accept,), may=(lost,), is_harmless=setting.moment == "steps", within_s=LOST_S)
    )


@contextmanager
def _copy(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with stage.other_state(case.guilty) as state:
        shutil.rmtree(state)
        shutil.copytree(stage.state(case.other), state, symlinks=True)
        shutil.rmtree(state / "jobs", ignore_errors=True)
        stage.start_agent(case.guilty)
        yield
    stage.spoil()


def _squatted(setting: Setting) -> Drawn:
    return Drawn(_of_node(setting, NOT_AN_AGENT, AGENT_GONE))


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


def _no_key(setting: Setting) -> Drawn:
    how = setting.chance.choice(("gone", "damaged", "readable by all"))
    return Drawn(_of_node(setting, AGENT_GONE | NOT_JOINED), {"how": how})


@contextmanager
def _spoil_key(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with stage.other_state(case.guilty) as state:
        own = state / "own.pem"
        if parameters["how"] == "gone":
            own.unlink()
        elif parameters["how"] == "damaged":
            own.write_bytes(own.read_bytes()[:200])
        else:
            own.chmod(0o644)
        stage.start_agent(case.guilty)
        yield


def _late_join(setting: Setting) -> Drawn:
    """A machine joins whose clock is ahead: its own clock is wrong, not the invitation."""
    channels: frozenset[Channel] = frozenset({"command"})
    accept = Accept(CLOCK_OFF, channels=channels)
    return Drawn(
        Truth((accept,), may=_any_silence(), within_s=LOST_S),
        {"off_s": setting.chance.choice((3 * DAY_S, 2 * 3600, 40 * DAY_S))},
    )


@contextmanager
def _join_ahead(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.spoil()
    home = stage.host(case.guilty).home
    library, ahead = home / "clock.so", home / "ahead"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    ahead.write_text(str(parameters["off_s"]))
    stage.kill_agent(case.guilty)
    shutil.rmtree(stage.state(case.guilty))
    token = invite(stage.host("node3"), stage.mntrain, "--uses", "1")
    environment = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(ahead)}
    stage.try_join(case.guilty, token, environment)
    yield


TRUST: tuple[Mechanism, ...] = (
    Mechanism("a revoked node", "trust", _revoked, _revoke, MOMENTS, weight=2),
    Mechanism("an expired certificate", "trust", _expired, _expire, MOMENTS, weight=3),
    Mechanism("a certificate of tomorrow", "trust", _too_early, _sign_ahead, MOMENTS, weight=2),
    Mechanism("a clock far off", "trust", _clock, _set_clock, MOMENTS, weight=3),
    Mechanism("a clock somewhat off", "trust", _small_clock, _set_clock, weight=1),
    Mechanism("another cluster's node", "trust", _foreign, _join_other, MOMENTS, weight=2),
    Mechanism("an empty state directory", "trust", _emptied, _empty, MOMENTS, weight=2),
    Mechanism("a node that joins again", "trust", _rejoined, _rejoin, spoils=True, weight=2),
    Mechanism("a copied machine", "trust", _copied, _copy, MOMENTS, weight=1),
    Mechanism("another program on the agent's port", "trust", _squatted, _squat, MOMENTS, weight=2),
    Mechanism("a key that cannot be used", "trust", _no_key, _spoil_key, MOMENTS, weight=2),
    Mechanism(
        "a clock ahead at joining",
        "trust",
        _late_join,
        _join_ahead,
        ("launch",),
        spoils=True,
        weight=1,
    ),
)
