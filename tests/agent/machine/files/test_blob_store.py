"""Blob store: bounded, checked, and nothing that a job needs is deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.project_files import write_project
from jupyter_mntrain.agent.machine.files import blob_store
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore, UploadPart
from jupyter_mntrain.launch.project.tree import Tree, TreeFile, encode_tree, sha256_of
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def part(content: bytes, *, offset: int = 0, of: bytes | None = None, key: str = "a") -> UploadPart:
    whole = content if of is None else of
    return UploadPart("driver kim", key, sha256_of(whole), offset, len(whole), content)


def put(
    store: BlobStore, content: bytes, *, age_s: float = 0.0, in_use: Collection[str] = ()
) -> str:
    store.take(part(content), in_use)
    path = store.path_of(sha256_of(content))
    told = path.stat().st_mtime - age_s
    os.utime(path, (told, told))
    return path.name


def test_parts_make_a_whole_and_repeated_ones_change_nothing(store: BlobStore) -> None:
    whole = b"0123456789"
    for _ in range(2):
        store.take(part(whole[:4], of=whole), ())
        store.take(part(whole[4:8], offset=4, of=whole), ())
        assert store.missing({sha256_of(whole): 10}) == (sha256_of(whole),)
    for _ in range(2):
        store.take(part(whole[8:], offset=8, of=whole), ())
        assert store.missing({sha256_of(whole): 10}) == ()
    assert store.read(sha256_of(whole), 3, 4) == b"3456"
    assert store.missing({sha256_of(whole): 9}) == (sha256_of(whole),), "a cut one counts as none"
    put(store, b"")
    assert store.missing({sha256_of(b""): 0}) == ()


def test_another_content_is_not_kept(store: BlobStore) -> None:
    lie = UploadPart("driver kim", "k", sha256_of(b"true"), 0, 4, b"lies")
    with pytest.raises(SpecError):
        store.take(lie, ())
    assert store.missing({lie.sha256: 4}) == (lie.sha256,)
    for odd in (
        lie._replace(offset=2),
        lie._replace(size_bytes=3),
        lie._replace(content=b"", offset=4),
        lie._replace(size_bytes=1 << 62),
        lie._replace(sha256="../../../etc/passwd"),
    ):
        with pytest.raises(SpecError):
            store.take(odd, ())
    with pytest.raises(SpecError):
        store.missing({"../../x": 1})


def test_uploads_of_a_member_are_bounded(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_store, "MOST_UPLOADS_EACH", 2)
    begun = part(b"1", of=b"12")
    for key in ("a", "b"):
        store.take(begun._replace(key=key), ())
    with pytest.raises(RefusedError) as caught:
        store.take(begun._replace(key="c"), ())
    assert caught.value.kind is Kind.TOO_MANY
    store.take(begun._replace(key="c", who="driver lee"), ())
    for path in (store.directory / "uploads").iterdir():
        os.utime(path, (1, 1))
    store.take(begun._replace(key="c"), ())


def test_what_was_used_least_recently_goes_first(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_store, "STORE_BYTES", 1000)
    needed = put(store, b"n" * 200, age_s=9000)
    tree = encode_tree(Tree((TreeFile("n", needed, 200),)))
    in_use = {put(store, tree, age_s=9000)}
    old, new, fresh = (put(store, name * 200, age_s=age) for name, age in
                       [(b"o", 8000), (b"m", 7000), (b"f", 1)])  # fmt: skip
    put(store, b"x" * 200, in_use=in_use)
    there = {path.name for path in store.directory.glob("??/*")}
    assert old not in there
    assert {needed, *in_use, new, fresh} <= there
    with pytest.raises(RefusedError) as caught:
        put(store, b"y" * 900, in_use=in_use)
    assert caught.value.kind is Kind.TOO_LARGE
    assert {needed, *in_use, fresh} <= {path.name for path in store.directory.glob("??/*")}


def test_a_full_disk_is_no_reason_to_fill_it(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_store, "SPARE_BYTES", 1 << 60)
    with pytest.raises(RefusedError) as caught:
        put(store, b"x")
    assert caught.value.kind is Kind.DISK_FULL


def test_a_project_is_written_as_it_was(store: BlobStore, tmp_path: Path) -> None:
    attempt = tmp_path / "jobs" / "j-1" / "attempt-1"
    work = attempt / "work"
    work.mkdir(parents=True)
    (work / "cell.py").write_text("of the job")
    data, program = put(store, b"\x00\xff"), put(store, b"#!/bin/sh\n")
    files = (
        TreeFile("pkg/data.bin", data, 2),
        TreeFile("run.sh", program, 10, is_executable=True),
        TreeFile("cell.py", program, 10),
    )
    tree = put(store, encode_tree(Tree(files, folders=("out",))))
    assert store.tree(tree).files == tuple(sorted(files, key=lambda one: one.path))
    write_project(attempt, tree)
    assert (work / "pkg" / "data.bin").read_bytes() == b"\x00\xff"
    assert (work / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (work / "pkg" / "data.bin").stat().st_mode & stat.S_IXUSR
    assert (work / "out").is_dir()
    assert (work / "cell.py").read_text() == "of the job"


def test_what_is_damaged_on_disk_is_found_and_sent_again(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "j-1" / "attempt-1" / "work").mkdir(parents=True)
    data = put(store, b"good")
    tree = put(store, encode_tree(Tree((TreeFile("a", data, 4),))))
    store.path_of(data).write_bytes(b"evil")
    with pytest.raises(OSError, match=r"a"):
        write_project(tmp_path / "jobs" / "j-1" / "attempt-1", tree)
    with pytest.raises(RefusedError) as caught:
        store.tree(tree)
    assert caught.value.kind is Kind.NO_FILE
    assert store.missing({data: 4}) == (data,)
