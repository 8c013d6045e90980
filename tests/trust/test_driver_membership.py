"""Driver membership and registrar: admits, renews and revokes, by a clock that tests set."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jupyter_mntrain.cluster.admission.desk import RENEW_EVERY_S, TrustRelay
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.certificates import (
    Subject,
    load_certificate,
    load_revocations,
    new_key,
    revoked_serials,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.driver_membership import (
    DriverMembership,
    clusters_directory,
    known_clusters,
    room_for,
)
from tests.trust.registering import LIFE, NODE, Clock, join, member, serial
from tests.wording import says, wording


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
@pytest.mark.parametrize("text", ["", "half", "nonsense", "-----BEGIN CERTIFICATE-----\n\n"])
def test_a_damaged_file_is_one_clear_error(
    identity: DriverMembership, name: str, text: str
) -> None:
    path: Path = identity.directory / name
    path.write_text(path.read_text()[: path.stat().st_size // 2] if text == "half" else text)
    with pytest.raises(TrustError) as caught:
        DriverMembership(identity.directory)
    assert str(path) in caught.value.cause
    assert caught.value.fix


def test_a_cluster_nobody_joined_makes_way_for_one_that_is_joined(
    identity: DriverMembership,
) -> None:
    assert room_for("home") == clusters_directory() / "home"
    assert not Credentials.exist(clusters_directory() / "home")
    moved = list(clusters_directory().glob("home.empty-*"))
    assert len(moved) == 1, "nothing is deleted"
    assert not [name for name in known_clusters() if name.startswith("home")]


def test_a_cluster_with_members_does_not(identity: DriverMembership) -> None:
    assert "home" in known_clusters()
    join(identity, identity.authorized().invite())
    with pytest.raises(SpecError, match=wording(r"a different cluster named 'home'.*home2")):
        room_for("home")
