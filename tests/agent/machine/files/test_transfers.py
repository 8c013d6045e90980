"""Transfers on a node: a failure is told once and the next try begins again; pieces have limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.access.limits import TooManyError
from jupyter_mntrain.agent.machine.files import transfers as module
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore
from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.agent.machine.files.space import FileSpace, InUse
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.launch.files import arriving
from jupyter_mntrain.launch.files.manifest import read_manifest
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import CleanRequest, Deposit, PieceManifest
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from tests.waiting import until

CONTENT = b"0123456789"


@pytest.fixture
def book(tmp_path: Path) -> TransferBook:
    return TransferBook(LargeRoots(tmp_path / "state"))


@pytest.fixture
def manifest(tmp_path: Path) -> PieceManifest:
    (tmp_path / "source").write_bytes(CONTENT)
    return read_manifest(tmp_path / "source", piece_bytes=4)


def settled(ask: Callable[[], Any]) -> Any:
    """What is answered once nothing is being read any more."""
    until(lambda: not ask().is_checking, "it to be read")
    return ask()


def test_it_comes_piece_by_piece(book: TransferBook, manifest: PieceManifest) -> None:
    deposit = Deposit("models", "one", manifest, nodes=("ab",))
    state = settled(lambda: book.deposit(deposit))
    assert (state.held, state.is_done) == ((), False)
    for piece in (2, 0):
        book.write(state.transfer, piece, CONTENT[piece * 4 : piece * 4 + 4])
    assert book.deposit(deposit).pieces == {0, 2}
    assert book.read(state.transfer, 2) == b"89"
    for piece in (1, 3, -1):
        with pytest.raises(RefusedError):
            book.read(state.transfer, piece)
    with pytest.raises(RefusedError):
        book.finish(state.transfer)
    book.write(state.transfer, 1, b"4567")
    assert book.finish(state.transfer).is_done
    assert book.finish(state.transfer).is_done
    assert (book.roots.base("models") / "one").read_bytes() == CONTENT
    assert book.read(state.transfer, 1) == b"4567"
    assert book.may_fetch(state.transfer, "ab")
    assert not book.may_fetch(state.transfer, "cd")
    assert settled(lambda: book.deposit(deposit)).is_done


def test_who_wants_a_piece_finds_it_while_it_comes(
    book: TransferBook, manifest: PieceManifest
) -> None:
    key = settled(lambda: book.deposit(Deposit("models", "one", manifest))).transfer
    assert book.coming(key, 1) is None
    assert book.may_come(key, 1)
    coming, again = book.begin(key, 1), book.begin(key, 1)
    coming.add(b"45")
    assert book.coming(key, 1) is coming
    assert (coming.come, coming.content[:2]) == (2, b"45")
    coming.add(b"67 and too much")
    book.end(key, 1, again)
    book.write(key, 1, coming.content)
    book.end(key, 1, coming)
    assert (coming.is_over, coming.content) == (True, b"4567")
    assert book.coming(key, 1) is None
    assert not book.may_come(key, 1)
    with pytest.raises(RefusedError):
        book.begin(key, 3)


def test_a_full_disk_is_told_and_the_next_try_begins_anew(
    book: TransferBook, manifest: PieceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposit = Deposit("models", "one", manifest)
    with monkeypatch.context() as change:
        change.setattr(arriving, "SPARE_BYTES", 1 << 60)
        with pytest.raises(RefusedError) as caught:
            settled(lambda: book.deposit(deposit))
        assert caught.value.kind is Kind.DISK_FULL
    assert not settled(lambda: book.deposit(deposit)).is_done


def test_what_is_not_known_or_too_much_is_refused(
    book: TransferBook, manifest: PieceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in (book.finish, lambda key: book.read(key, 0), lambda key: book.write(key, 0, b"")):
        with pytest.raises(RefusedError):
            ask("0" * 64)
    with pytest.raises(SpecError):
        book.deposit(Deposit("models", "../out", manifest))
    with pytest.raises(SpecError):
        book.deposit(Deposit("etc", "passwd", manifest))
    monkeypatch.setattr(module, "MOST", 1)
    book.deposit(Deposit("models", "one", manifest))
    with pytest.raises(TooManyError):
        book.deposit(Deposit("models", "two", manifest))


def test_what_nothing_happens_to_is_forgotten_without_a_next_transfer(
    book: TransferBook, manifest: PieceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposit = Deposit("models", "one", manifest)
    settled(lambda: book.deposit(deposit))
    book.forget_idle()
    assert book.open_folders()
    monkeypatch.setattr(module, "IDLE_S", -1.0)
    book.forget_idle()
    monkeypatch.undo()
    assert not book.open_folders()


def test_a_link_that_leads_out_is_never_read(book: TransferBook, tmp_path: Path) -> None:
    folder = book.roots.base("models") / "m"
    folder.mkdir()
    (tmp_path / "secret").write_text("s")
    (folder / "weights").symlink_to(tmp_path / "secret")
    with pytest.raises(MntrainError):
        book.hashing(LargeName("models", "m"))


def test_what_a_job_uses_stays(book: TransferBook, tmp_path: Path) -> None:
    for name in ("used", "path", "free"):
        (book.roots.base("models") / name).write_bytes(CONTENT)
    space = FileSpace(tmp_path / "state", book, BlobStore(tmp_path / "state" / "blobs"))
    path = book.roots.base("models") / "path"
    in_use = InUse((), f'{{"source":"models:used","other":"{path}"}}', ())
    names = ("models:used", "models:path", "models:free", "models:absent")
    cleaned = space.clean(CleanRequest(names, is_trial=False), in_use)
    assert [one.what for one in cleaned.things] == ["models:free"]
    assert set(cleaned.kept) == {"models:used", "models:path", "models:absent"}
    assert cleaned.kept["models:absent"] == "it is not here"
    assert {one.name for one in path.parent.iterdir()} == {"used", "path"}
