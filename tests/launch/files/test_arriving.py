"""Pieces: cut over all files, checked by hash, kept when a push is broken off, and only whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.launch.files import arriving as module
from jupyter_mntrain.launch.files.arriving import Arriving
from jupyter_mntrain.launch.files.manifest import (
    PieceFiles,
    check_manifest,
    list_files,
    read_manifest,
    transfer_of,
)
from jupyter_mntrain.launch.files.records import LargeFile, PieceManifest
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind

CONTENTS = {"a.bin": b"0123456789" * 10, "empty": b"", "sub/b": b"xyz", "sub/run.sh": b"#!/bin/sh"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    for name, content in CONTENTS.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    (made / "sub" / "run.sh").chmod(0o755)
    return made


def begin(goal: Path, manifest: PieceManifest) -> Arriving:
    made = Arriving(goal, goal.parent, transfer_of("models", goal.name, manifest), manifest)
    made.prepare("models:x")
    return made


def contents(path: Path) -> dict[str, bytes]:
    files = [one for one in path.rglob("*") if one.is_file()]
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in files}


def test_a_folder_comes_whole_in_any_order(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder, piece_bytes=7)
    source = PieceFiles(folder, manifest, None)
    goal = tmp_path / "there" / "model"
    goal.parent.mkdir()
    coming = begin(goal, manifest)
    for piece in reversed(range(len(manifest.pieces))):
        with pytest.raises(RefusedError):
            coming.finish()
        coming.write(piece, source.read(piece))
    assert not goal.exists()
    coming.finish()
    assert contents(goal) == CONTENTS
    assert (goal / "sub" / "run.sh").stat().st_mode & 0o100
    assert not coming.folder.exists()


def test_a_single_file_and_an_empty_one_come_as_files(tmp_path: Path) -> None:
    for content in (b"abcdefgh", b""):
        source = tmp_path / "one"
        source.write_bytes(content)
        manifest = read_manifest(source, piece_bytes=3)
        coming = begin(tmp_path / f"goal-{len(content)}", manifest)
        for piece in range(len(manifest.pieces)):
            coming.write(piece, PieceFiles(source, manifest, None).read(piece))
        coming.finish()
        assert coming.goal.read_bytes() == content


def test_what_arrived_counts_the_next_time_unless_it_changed(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder, piece_bytes=10)
    source = PieceFiles(folder, manifest, None)
    goal = tmp_path / "goal"
    first = begin(goal, manifest)
    for piece in (0, 2, 3):
        first.write(piece, source.read(piece))
    tree = first.folder / "tree"
    damaged = bytearray((tree / "a.bin").read_bytes())
    damaged[25] ^= 1
    (tree / "a.bin").write_bytes(damaged)
    assert begin(goal, manifest).held == {0, 3}


def test_a_piece_with_another_content_is_refused(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder, piece_bytes=10)
    coming = begin(tmp_path / "goal", manifest)
    for piece, content in ((0, b"9876543210"), (99, b""), (-1, b"")):
        with pytest.raises(SpecError):
            coming.write(piece, content)
    assert coming.held == set()


def test_without_room_nothing_begins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 1 << 60)
    with pytest.raises(RefusedError) as caught:
        begin(tmp_path / "goal", read_manifest(folder))
    assert caught.value.kind is Kind.DISK_FULL
    assert not (tmp_path / ".mntrain").exists()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "", "a//b", ".", "a\0"])
def test_a_list_that_leads_out_is_refused(path: str) -> None:
    files = (LargeFile(path=path, size_bytes=0), LargeFile(path="ok", size_bytes=0))
    with pytest.raises(SpecError):
        check_manifest(PieceManifest(files=files, piece_bytes=1, pieces=()))


def test_a_list_whose_pieces_do_not_fit_is_refused(folder: Path) -> None:
    manifest = read_manifest(folder, piece_bytes=10)
    for wrong in (
        msgspec.structs.replace(manifest, pieces=manifest.pieces[:-1]),
        msgspec.structs.replace(manifest, files=()),
        msgspec.structs.replace(manifest, files=(manifest.files[0],) * 2),
    ):
        with pytest.raises(SpecError):
            check_manifest(wrong)


def test_links_within_a_root_are_followed_and_others_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("sub/b")
    files = {one.path: one.size_bytes for one in list_files(folder, tmp_path / "model")}
    assert files["link"] == 3
    (tmp_path / "secret").write_text("s")
    (folder / "out").symlink_to(tmp_path / "secret")
    with pytest.raises(RefusedError):
        list_files(folder, folder)


def test_a_link_that_changes_after_it_was_listed_reads_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "m"
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"1234")
    manifest = read_manifest(folder, tmp_path / "root")
    (folder / "a").unlink()
    (tmp_path / "secret").write_bytes(b"5678")
    (folder / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(RefusedError):
        PieceFiles(folder, manifest, tmp_path / "root").read(0)


def test_a_folder_that_becomes_a_link_after_it_was_listed_reads_nothing(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root / "m" / "sub", elsewhere):
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            (folder / name).write_bytes(b"1234")
    files = PieceFiles(root / "m", read_manifest(root / "m", root), root)
    assert files.read(0) == b"12341234"
    (root / "m" / "sub").rename(root / "kept")
    (root / "m" / "sub").symlink_to(elsewhere)
    with pytest.raises(RefusedError):
        files.read(0)


def test_what_macos_keeps_beside_files_is_not_sent(folder: Path) -> None:
    for name in (".DS_Store", "._a.bin", "sub/._b"):
        (folder / name).write_bytes(b"attributes")
    assert {one.path for one in list_files(folder)} == CONTENTS.keys()


def test_a_file_that_shrinks_is_noticed(folder: Path) -> None:
    manifest = read_manifest(folder)
    (folder / "a.bin").write_bytes(b"short")
    with pytest.raises(SpecError):
        PieceFiles(folder, manifest, None).read(0)
