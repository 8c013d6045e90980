"""Registrar: who may join under which name, who replaces whom, and the lines that this leaves."""

from __future__ import annotations

import json

import pytest

from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.certificates import (
    Role,
    Subject,
    new_key,
    request,
)
from jupyter_mntrain.trust.driver_membership import DriverMembership
from jupyter_mntrain.trust.joining.messages import Application
from jupyter_mntrain.trust.joining.token import endorse, new_nonce, write_token
from tests.trust.registering import KEYS, LIFE, NODE, Clock, join, member, serial
from tests.wording import says, wording


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


def test_a_name_outside_of_ascii_is_refused_with_what_a_name_may_be(
    identity: DriverMembership,
) -> None:
    foreign = Subject(role="driver", name="jörg-büro")
    with pytest.raises(TrustError, match=wording("cannot be the name of a driver")) as refused:
        request(new_key(), foreign)
    assert says("letters of a to z", refused.value.problem.fix)
    token = identity.authorized().invite("driver")
    invite = next(i for i in identity.authorized().invites() if i.token == token)
    asked = request(new_key(), Subject(role="driver", name="kim"))
    answer = identity.authorized().admit(
        invite, Application(nonce=new_nonce(), subject=foreign, name="n1", request=asked)
    )
    assert answer.certificate == ""
    assert says("letters of a to z", answer.fix)


@pytest.mark.parametrize("name", ["n" * 100_000, "n1\n✓ admitted", "<script>alert(1)</script>", ""])
def test_a_machine_s_own_name_is_one_that_can_be_shown(
    identity: DriverMembership, name: str
) -> None:
    """It has a token, but what it calls itself goes into registers, pages and lines of a log."""
    token = identity.authorized().invite()
    invite = next(i for i in identity.authorized().invites() if i.token == token)
    asked = Application(
        nonce=new_nonce(), subject=NODE, name=name, request=request(new_key(), NODE)
    )
    answer = identity.authorized().admit(invite, asked)
    assert answer.certificate == ""
    assert answer.fix
    assert len(answer.refusal) < 300
    assert "\n" not in answer.refusal
    noted = (identity.directory / "audit.log").read_text().splitlines()[-1]
    assert len(noted) < 1000
    assert json.loads(noted)["name"] != "n" * 100_000
