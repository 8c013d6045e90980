"""Tree: no path that was sent can leave the working directory."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.launch.project.tree import (
    MOST_FILES,
    Tree,
    TreeFile,
    encode_tree,
    read_tree,
    sha256_of,
)
from jupyter_mntrain.model.errors import SpecError

EMPTY = sha256_of(b"")
PARTS = st.sampled_from(["..", ".", "", "a", "b.py", "~", "\0", "é", "C:", "\\", "a" * 300, "\n"])
PATHS = st.lists(PARTS, max_size=5).map("/".join)


def one(path: str) -> TreeFile:
    return TreeFile(path, EMPTY, 0)


@given(st.lists(PATHS, max_size=4))
def test_what_is_accepted_stays_below_any_directory(paths: list[str]) -> None:
    try:
        tree = read_tree(msgspec.json.encode(Tree(files=tuple(map(one, paths)))))
    except SpecError:
        return
    root = Path("/jobs/work")
    for file in tree.files:
        assert (root / file.path).resolve().is_relative_to(root)
        assert str(PurePosixPath(file.path)) == file.path
    assert len({file.path for file in tree.files}) == len(paths)


@pytest.mark.parametrize(
    "paths",
    [["/etc/passwd"], ["../x"], ["a/../../x"], ["a", "a"], ["a", "a/b"], ["a//b"], ["./a"], [""]],
)
def test_paths_that_cannot_be_written_are_refused(paths: list[str]) -> None:
    for folders in ((), ("fine",)):
        with pytest.raises(SpecError):
            read_tree(msgspec.json.encode(Tree(files=tuple(map(one, paths)), folders=folders)))
    with pytest.raises(SpecError):
        read_tree(msgspec.json.encode(Tree(files=(one("a"),), folders=("a/b",))))


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 50_000, b'{"files":[{}]}'])
def test_what_is_no_tree_is_refused(content: bytes) -> None:
    with pytest.raises(SpecError):
        read_tree(content)


def test_a_tree_has_no_more_files_than_the_limit() -> None:
    files = tuple(one(str(number)) for number in range(MOST_FILES + 1))
    assert len(read_tree(msgspec.json.encode(Tree(files=files[:-1]))).files) == MOST_FILES
    with pytest.raises(SpecError):
        read_tree(msgspec.json.encode(Tree(files=files)))


def test_the_same_files_have_the_same_hash() -> None:
    assert encode_tree(Tree((one("a"), one("b")))) == encode_tree(Tree((one("b"), one("a"))))
    assert encode_tree(Tree((one("a"),))) != encode_tree(Tree((one("b"),)))
