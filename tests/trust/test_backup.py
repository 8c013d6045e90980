"""Backup of an authority: encrypted, whole or refused, and never over what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import MntrainError, SpecError, TrustError
from jupyter_mntrain.trust import backup as backups
from jupyter_mntrain.trust.backup import AuthorityBackup
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.trust.driver_membership import (
    AUTHORITY_KEY,
    DriverMembership,
    clusters_directory,
)
from tests.trust.registering import Clock, join
from tests.wording import says

WORDS = "correct horse battery staple"
NODES = [Subject(role="node", name=two * 16) for two in ("aa", "bb", "cc")]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "COST", 1 << 14)


@pytest.fixture
def file(identity: DriverMembership, tmp_path: Path) -> Path:
    token = identity.authorized().invite(uses=2)
    for subject in NODES[:2]:
        join(identity, token, subject)
    path = tmp_path / "lab.bak"
    AuthorityBackup(path).write(identity, "moved", WORDS)
    return path


def everything(directory: Path) -> dict[str, bytes]:
    files = directory.rglob("*") if directory.exists() else ()
    return {str(path): path.read_bytes() for path in files if path.is_file()}


def test_it_is_for_this_user_alone_and_tells_nothing(
    file: Path, identity: DriverMembership
) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    assert b"PRIVATE" not in content
    assert NODES[0].name.encode() not in content
    with pytest.raises(SpecError):
        AuthorityBackup(file).write(identity, "moved", WORDS)
    assert file.read_bytes() == content
    with pytest.raises(SpecError):
        AuthorityBackup(file.with_name("short")).write(identity, "moved", "short")


def test_another_machine_holds_the_same_authority_afterwards(
    file: Path, identity: DriverMembership
) -> None:
    done = AuthorityBackup(file).restore(WORDS)
    assert (done.cluster, done.members, done.moved_to) == ("moved", 3, None)
    found = DriverMembership.find("moved")
    assert found is not None
    assert found.credentials.authority == identity.credentials.authority
    assert found.credentials.subject == identity.credentials.subject
    assert {m.name for m in found.authorized().members()} >= {one.name for one in NODES[:2]}
    directory = clusters_directory() / "moved"
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert '"restore"' in (directory / "audit.log").read_text()
    assert '"backup"' in (identity.directory / "audit.log").read_text()


def test_what_is_wrong_is_refused_and_leaves_everything_as_it_was(file: Path) -> None:
    AuthorityBackup(file).restore(WORDS, cluster="mine")
    before = everything(clusters_directory())
    content = file.read_bytes()
    bad = file.with_name("bad")

    def refused(passphrase: str = WORDS, **options: bool) -> type[MntrainError]:
        with pytest.raises(MntrainError) as caught:
            AuthorityBackup(bad).restore(passphrase, cluster="mine", replaces=True)
        assert caught.value.fix
        assert everything(clusters_directory()) == before
        return type(caught.value)

    assert refused() is SpecError, "there is none"
    bad.write_bytes(content)
    assert refused("another passphrase") is TrustError
    for cut in (0, 1, len(content) // 2, len(content) - 10):
        bad.write_bytes(content[:cut])
        assert refused() is SpecError
    for old, new in (
        (b'"cluster": "moved"', b'"cluster": "lib"'),
        (b'"sealed": "', b'"sealed": "AAAA'),
    ):
        assert old in content
        bad.write_bytes(content.replace(old, new))
        assert refused() is TrustError
    bad.write_bytes(content.replace(b'"cost": 16384', b'"cost": 1073741824'))
    assert refused() is SpecError, "it would need a terabyte"
    bad.write_bytes(content.replace(b'backup": 1', b'backup": 2'))
    assert refused() is SpecError


def test_an_authority_is_replaced_only_if_asked_and_kept_aside(file: Path) -> None:
    other = DriverMembership.make("moved")
    key = (other.directory / AUTHORITY_KEY).read_bytes()
    with pytest.raises(SpecError) as caught:
        AuthorityBackup(file).restore(WORDS)
    assert says("--replace", caught.value.fix)
    assert (other.directory / AUTHORITY_KEY).read_bytes() == key
    done = AuthorityBackup(file).restore(WORDS, replaces=True)
    assert done.moved_to is not None
    assert (Path(done.moved_to) / AUTHORITY_KEY).read_bytes() == key
    assert (other.directory / AUTHORITY_KEY).read_bytes() != key


def test_an_old_backup_catches_up_with_what_was_revoked_since(
    file: Path, identity: DriverMembership, clock: Clock
) -> None:
    for subject in NODES[:1]:
        identity.authorized().revoke(subject.name)
    newer = identity.credentials.revocations_pem()
    AuthorityBackup(file).restore(WORDS)
    restored = DriverMembership.find("moved", clock=clock)
    assert restored is not None
    restored.credentials.take_revocations(newer)  # from a node
    gone = {m.name for m in restored.authorized().members() if m.is_revoked}
    assert gone == {NODES[0].name}
    clock.now_s += 10
    restored.authorized().revoke(NODES[1].name)
    assert restored.credentials.revocations == identity.credentials.revocations + 1
    assert restored.credentials.revoked > identity.credentials.revoked
    assert identity.credentials.take_revocations(restored.credentials.revocations_pem())
