"""Driver membership and registrar: admits, renews and revokes, by a clock that tests set."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.cluster.admission.trust_relay import RENEW_EVERY_S, TrustRelay
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.certificates import (
    Role,
    Subject,
    load_certificate,
    load_revocations,
    new_key,
    request,
    revoked_serials,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory, room_for
from jupyter_mntrain.trust.joining.endorsement import endorse
from jupyter_mntrain.trust.joining.messages import Admission, Application
from jupyter_mntrain.trust.joining.proof import new_nonce
from jupyter_mntrain.trust.joining.token import Token, write_token
from jupyter_mntrain.trust.member_register import RegisteredMember
from tests.wording import says, wording

LIFE = timedelta(days=20)
NODE = Subject(role="node", name="ab" * 16)
START_S = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identity(clock: Clock) -> DriverMembership:
    made = DriverMembership.make("home", clock=clock)
    return DriverMembership(made.directory, clock=clock, lifetime=LIFE)


KEYS: dict[str, ec.EllipticCurvePrivateKey] = defaultdict(new_key)
"""Of members that keep theirs, by URI."""


def join(
    identity: DriverMembership,
    token: Token,
    subject: Subject = NODE,
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    former: ec.EllipticCurvePrivateKey | None = None,
) -> Admission:
    invite = next(one for one in identity.authorized().invites() if one.token == token)
    wanted = request(key or KEYS[subject.uri], subject)
    asked = Application(
        nonce=new_nonce(),
        subject=subject,
        name="n1",
        request=wanted,
        endorsement=endorse(former, wanted) if former else b"",
    )
    return identity.authorized().admit(invite, asked)


def member(identity: DriverMembership, subject: Subject = NODE) -> RegisteredMember:
    return next(m for m in identity.authorized().members() if m.subject == subject)


def serial(pem: str) -> int:
    return load_certificate(pem).serial_number


def test_an_invitation_admits_so_many_until_its_time(
    identity: DriverMembership, clock: Clock
) -> None:
    token = identity.authorized().invite(uses=2)
    first, second, third = (Subject(role="node", name=two * 16) for two in ("aa", "bb", "cc"))
    assert join(identity, token, first).refusal is None
    # Its answer was lost, and it asks again: that is no second use.
    assert join(identity, token, first).refusal is None
    assert join(identity, token, second).refusal is None
    refusal = join(identity, token, third).refusal
    assert refusal
    assert says("used up", refusal)
    assert len(identity.authorized().open_invites()) == 1, "neither has its certificate yet"
    (invite,) = identity.authorized().invites()
    for subject in (first, second, second):
        identity.authorized().note_joined(invite, subject)
    assert identity.authorized().invites()[0].joined == (first.uri, second.uri)
    assert identity.authorized().open_invites() == []
    late = identity.authorized().invite()
    assert len(identity.authorized().open_invites()) == 1
    clock.now_s = late.expires_s
    refusal = join(identity, late, third).refusal
    assert refusal
    assert says("expired", refusal)
    assert identity.authorized().invitation(late.id) is None
    assert {m.name for m in identity.authorized().members() if m.role == "node"} == {
        first.name,
        second.name,
    }


def test_a_token_for_a_node_makes_no_driver(identity: DriverMembership) -> None:
    for role, other in (("node", "driver"), ("driver", "node")):
        token = identity.authorized().invite(role)  # type: ignore[arg-type]
        wrong = Subject(role=other, name="kim" if other == "driver" else NODE.name)  # type: ignore[arg-type]
        refusal = join(identity, token, wrong).refusal
        assert refusal
        assert says("another role", refusal)
    assert len(identity.authorized().members()) == 1


@pytest.mark.parametrize("role", ["node", "driver"])
def test_nobody_joins_under_the_id_of_another(identity: DriverMembership, role: Role) -> None:
    """Ids and names are public: whoever has a token could act as any member."""
    victim = Subject(role=role, name="ab" * 16)
    token = identity.authorized().invite(role, uses=9)
    own, stolen = new_key(), new_key()
    assert join(identity, token, victim, key=own).refusal is None
    before = member(identity, victim)
    for attempt in (
        join(identity, token, victim, key=stolen),  # the same token
        join(identity, identity.authorized().invite(role), victim, key=stolen),
        join(identity, identity.authorized().invite(role), victim, key=stolen, former=stolen),
    ):
        assert attempt.refusal
        assert attempt.fix
        assert attempt.certificate == ""
    assert member(identity, victim) == before
    # An endorsement is for one request: it cannot be moved to another.
    newer = new_key()
    moved = Application(
        nonce=new_nonce(),
        subject=victim,
        name="n1",
        request=request(stolen, victim),
        endorsement=endorse(own, request(newer, victim)),
    )
    invite = next(i for i in identity.authorized().invites() if i.token == token)
    assert identity.authorized().admit(invite, moved).refusal
    # Its owner joins again: after a lost answer with the same key, later with a new one.
    assert join(identity, token, victim, key=own).refusal is None
    fresh = identity.authorized().invite(role)
    assert join(identity, fresh, victim, key=newer, former=own).refusal is None
    assert identity.credentials.revoked == frozenset()


def test_a_member_whose_key_is_lost_is_replaced(identity: DriverMembership) -> None:
    join(identity, identity.authorized().invite(), key=new_key())
    lost = serial(member(identity).certificate)
    token = identity.authorized().invite(replaces="n1")
    key = new_key()
    admission = join(identity, token, key=key)
    assert admission.refusal is None
    assert identity.credentials.revoked == {lost}
    assert admission.revocations == identity.credentials.revocations_pem(), "it is told, too"
    assert join(identity, token, key=key).refusal is None, "its answer was lost"
    assert join(identity, token, key=new_key()).refusal, "the token is used up"
    assert identity.credentials.revoked == {lost}
    # A machine that lost its id as well replaces it all the same.
    other = Subject(role="node", name="cd" * 16)
    lost = serial(admission.certificate)
    token = identity.authorized().invite(replaces=NODE.name)
    assert join(identity, token, other, key=new_key()).refusal is None
    assert lost in identity.credentials.revoked
    assert [m.name for m in identity.authorized().members() if not m.is_revoked][1:] == [other.name]


def test_a_read_only_driver_is_a_driver_by_name(identity: DriverMembership, clock: Clock) -> None:
    registrar = identity.authorized()
    kim, viewer = (Subject(role=role, name="kim") for role in ("driver", "viewer"))  # type: ignore[arg-type]
    assert join(identity, registrar.invite("viewer"), kim).refusal, "the token says what it may be"
    assert join(identity, registrar.invite("viewer"), viewer).refusal is None
    assert join(identity, registrar.invite("driver"), kim, key=KEYS[viewer.uri]).refusal
    node = Subject(role="node", name="kim")
    assert join(identity, registrar.invite(), node).refusal is None
    # It is renewed and revoked like any other driver.
    clock.now_s += LIFE.total_seconds() * 0.6
    assert registrar.renew()
    assert member(identity, viewer).certificate in identity.news_for("ab" * 16).certificates
    assert registrar.revoke("kim", role="driver").subject == viewer


def test_every_change_of_trust_leaves_a_line(identity: DriverMembership, clock: Clock) -> None:
    registrar = identity.authorized()
    token = registrar.invite(uses=2)
    (invite,) = registrar.invites()
    join(identity, token)
    registrar.note_joined(invite, NODE)
    join(identity, token, key=new_key())
    registrar.note_refused("10.0.0.9:8765", "another token")
    clock.now_s += LIFE.total_seconds() * 0.6
    registrar.renew()
    registrar.revoke("n1")
    path = identity.directory / "audit.log"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = ["invite", "join", "join", "join", "join", "renew", "revoke"]
    assert [line["what"] for line in lines] == kinds
    begun = [line["outcome"].partition(":")[0] for line in lines[1:5]]
    assert begun == ["admitted", "done", "refused", "refused"]
    assert {line["who"] for line in lines} == {f"driver {identity.credentials.subject.name}"}
    assert {line.get("member", NODE.uri) for line in lines} == {NODE.uri}
    assert lines[0]["invitation"] == lines[1]["invitation"] == token.id
    assert lines[4]["from"] == "10.0.0.9:8765"
    assert write_token(token) not in path.read_text()


def test_only_another_member_can_be_replaced_and_by_one_machine(
    identity: DriverMembership,
) -> None:
    own = identity.credentials.subject.name
    for role, name, uses in (("node", "n1", 1), ("driver", own, 1), ("node", own, 1)):
        with pytest.raises(SpecError):
            identity.authorized().invite(role, replaces=name, uses=uses)  # type: ignore[arg-type]
    join(identity, identity.authorized().invite())
    with pytest.raises(SpecError):
        identity.authorized().invite(replaces="n1", uses=2)


def test_a_driver_does_not_take_the_name_of_another(identity: DriverMembership) -> None:
    kim = Subject(role="driver", name="kim")
    assert join(identity, identity.authorized().invite("driver"), kim).refusal is None
    again = join(identity, identity.authorized().invite("driver"), kim, key=new_key())
    assert "kim" in (again.refusal or "")
    assert says("already has a driver named kim", again.refusal or "")
    identity.authorized().revoke("kim")
    assert join(identity, identity.authorized().invite("driver"), kim).refusal is None


def test_certificates_are_renewed_before_they_expire_without_anybody_asking(
    identity: DriverMembership, clock: Clock
) -> None:
    join(identity, identity.authorized().invite())
    first = load_certificate(member(identity).certificate)
    relay = TrustRelay(identity)
    relay.renew(clock())
    assert load_certificate(member(identity).certificate) == first, "it is young"
    clock.now_s += LIFE.total_seconds() * 0.6
    relay.renew(clock())
    second = load_certificate(member(identity).certificate)
    assert second.public_key() == first.public_key()
    assert second.not_valid_after_utc > first.not_valid_after_utc
    assert second.not_valid_after_utc.timestamp() > clock() + 0.9 * LIFE.total_seconds()
    own = identity.credentials.certificate
    # The driver's own has a whole year.
    assert own.not_valid_after_utc - own.not_valid_before_utc > timedelta(days=360)
    # Never is it due for so long that it ends before anybody has looked.
    for _ in range(200):
        clock.now_s += RENEW_EVERY_S
        relay.renew(clock())
        until = load_certificate(member(identity).certificate).not_valid_after_utc.timestamp()
        assert until - clock() >= LIFE.total_seconds() / 2 - 2 * RENEW_EVERY_S


def test_whoever_is_revoked_is_so_with_all_certificates_it_ever_had(
    identity: DriverMembership, clock: Clock
) -> None:
    join(identity, identity.authorized().invite())
    serials = [serial(member(identity).certificate)]
    clock.now_s += LIFE.total_seconds() * 0.6
    assert identity.authorized().renew()
    serials.append(serial(member(identity).certificate))
    join(identity, identity.authorized().invite())  # again, with the key that it has
    serials.append(serial(member(identity).certificate))
    assert len(set(serials)) == 3
    gone = identity.authorized().revoke("n1")
    assert gone.name == NODE.name
    assert identity.credentials.revoked == set(serials)
    number, known = revoked_serials(
        load_revocations(identity.credentials.revocations_pem()), identity.credentials.authority
    )
    assert (number, known) == (2, set(serials))
    # It joins once more: it is a new member, and the old one stays revoked.
    assert join(identity, identity.authorized().invite()).refusal is None
    assert [m.is_revoked for m in identity.authorized().members() if m.subject == NODE] == [
        True,
        False,
    ]
    assert identity.credentials.revoked == set(serials)


def test_a_newer_list_is_newer_for_openssl_too(identity: DriverMembership) -> None:
    lists = [load_revocations(identity.credentials.revocations_pem())]
    for name in ("kim", "lou"):
        join(identity, identity.authorized().invite("driver"), Subject(role="driver", name=name))
        identity.authorized().revoke(name)
        lists.append(load_revocations(identity.credentials.revocations_pem()))
    times = [one.last_update_utc for one in lists]
    assert times == sorted(set(times)), "all within one second of the clock"


def test_a_node_is_not_revoked_as_a_driver(identity: DriverMembership) -> None:
    join(identity, identity.authorized().invite())
    with pytest.raises(SpecError, match=wording("n1 is a node, not a driver")):
        identity.authorized().revoke("n1", role="driver")
    assert not identity.credentials.revoked
    assert identity.authorized().revoke("n1", role="node").name == NODE.name


@pytest.mark.parametrize("name", ["", "nobody", "node9"])
def test_nobody_of_that_name_is_said_so(identity: DriverMembership, name: str) -> None:
    with pytest.raises(SpecError):
        identity.authorized().revoke(name)


def test_the_authority_itself_is_not_revoked(identity: DriverMembership) -> None:
    with pytest.raises(SpecError, match=wording("holds the cluster's authority")):
        identity.authorized().revoke(identity.credentials.subject.name)


def test_two_processes_that_make_a_cluster_make_one(clock: Clock) -> None:
    first, second = (
        DriverMembership.make("twice", clock=clock),
        DriverMembership.make("twice", clock=clock),
    )
    assert first.credentials.authority == second.credentials.authority


def test_another_process_s_invitations_and_revocations_are_seen(
    identity: DriverMembership, clock: Clock
) -> None:
    other = DriverMembership.find("home", clock=clock)
    assert other is not None
    token = other.authorized().invite("driver")
    join(identity, token, Subject(role="driver", name="kim"))
    other.authorized().revoke("kim")
    assert identity.credentials.revocations == 1
    assert identity.credentials.refresh()
    assert identity.credentials.revocations == 2


def test_the_files_are_their_owner_s_alone(identity: DriverMembership) -> None:
    assert identity.directory.stat().st_mode & 0o077 == 0
    for name in ("own.pem", "trusted.pem", "authority.key"):
        path = identity.directory / name
        assert path.stat().st_mode & 0o777 == 0o600, name
        for mode in (0o644, 0o640, 0o604, 0o660):
            path.chmod(mode)
            with pytest.raises(
                TrustError, match=wording(rf"other users can read .*{name}.*chmod 600")
            ):
                DriverMembership(identity.directory)
        path.chmod(0o600)
    DriverMembership(identity.directory)


@pytest.mark.parametrize("name", ["own.pem", "trusted.pem", "authority.key"])
@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\n\n"])
def test_a_damaged_file_is_one_clear_error(
    identity: DriverMembership, name: str, text: str
) -> None:
    path: Path = identity.directory / name
    path.write_text(text)
    with pytest.raises(TrustError):
        DriverMembership(identity.directory)


def test_a_cluster_nobody_joined_makes_way_for_one_that_is_joined(
    identity: DriverMembership,
) -> None:
    assert room_for("home") == clusters_directory() / "home"
    assert not Credentials.exist(clusters_directory() / "home")
    moved = list(clusters_directory().glob("home.empty-*"))
    assert len(moved) == 1, "nothing is deleted"


def test_a_cluster_with_members_does_not(identity: DriverMembership) -> None:
    join(identity, identity.authorized().invite())
    with pytest.raises(SpecError, match=wording(r"a different cluster named 'home'.*home2")):
        room_for("home")
