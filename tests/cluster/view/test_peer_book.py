"""Peer book: per cluster, private, intact after a crash, shared by several kernels."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from jupyter_mntrain.cluster.view.peer_book import PeerBook
from jupyter_mntrain.model.errors import SpecError


def test_addresses_are_remembered_per_cluster_in_order_and_once() -> None:
    book = PeerBook()
    for address in ("b:1", "a:1", "b:1"):
        book.remember("lab", address)
    book.remember("home", "c:1")
    again = PeerBook()
    assert again.addresses("lab") == ("b:1", "a:1")
    assert again.addresses("home") == ("c:1",)
    assert again.addresses("elsewhere") == ()


def test_forgetting_says_whether_there_was_anything() -> None:
    book = PeerBook()
    book.remember("lab", "a:1")
    assert book.forget("lab", "a:1")
    assert not book.forget("lab", "a:1")
    assert book.addresses("lab") == ()


def test_the_file_is_the_users_own_in_the_users_configuration(tmp_path: Path) -> None:
    book = PeerBook()
    assert book.path.is_relative_to(Path.home())
    book.remember("lab", "a:1")
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert [p.name for p in book.path.parent.iterdir() if "peers.json" in p.name] == ["peers.json"]


@pytest.mark.parametrize("text", ["", "{", '{"clusters": 3}', "\x00"])
def test_a_damaged_file_is_named_and_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "peers.json"
    path.write_text(text)
    book = PeerBook(path)
    with pytest.raises(SpecError, match=r"peers\.json"):
        book.addresses("lab")
    with pytest.raises(SpecError):
        book.remember("lab", "a:1")
    assert path.read_text() == text


def _remember_ten(path: Path, number: int) -> None:
    for n in range(10):
        PeerBook(path).remember("lab", f"host{number}:{n}")


@pytest.mark.slow
def test_kernels_that_remember_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    context = multiprocessing.get_context("spawn")
    kernels = [context.Process(target=_remember_ten, args=(path, n)) for n in range(3)]
    for kernel in kernels:
        kernel.start()
    for kernel in kernels:
        kernel.join(60)
        assert kernel.exitcode == 0
    assert len(PeerBook(path).addresses("lab")) == 30
