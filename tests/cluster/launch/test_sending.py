"""Sending a project's files: how many requests that takes, and what is checked before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cluster.launch.sending import send_project
from jupyter_mntrain.launch.project.stage import stage_project
from jupyter_mntrain.launch.project.tree import sha256_of
from jupyter_mntrain.model.errors import SpecError
from tests.wording import wording


class Node:
    """Lacks everything, and keeps what it gets."""

    node = "node1"

    def __init__(self) -> None:
        self.bundles: list[set[str]] = []
        self.large: set[str] = set()

    async def missing_blobs(self, sizes: dict[str, int]) -> tuple[str, ...]:
        return tuple(sizes)

    async def put_blobs(self, contents: Sequence[bytes]) -> None:
        self.bundles.append({sha256_of(one) for one in contents})

    async def put_blob(self, sha256: str, part: bytes, **_: object) -> None:
        self.large.add(sha256)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(300):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n" * 10)
    (tmp_path / "empty").touch()
    (tmp_path / "weights.bin").write_bytes(bytes(5 << 20))
    return tmp_path


def send(node: Any, folder: Any) -> None:
    asyncio.run(send_project(folder.sha256, folder, [node]))


def test_small_files_share_a_request_and_large_ones_come_in_parts(folder: Path) -> None:
    staged, node = stage_project(folder), Node()
    send(node, staged)
    assert set().union(*node.bundles) | node.large == {*staged.sources, staged.sha256}
    assert len(node.bundles) <= 3
    assert node.large == {sha256_of(bytes(5 << 20))}


def test_a_file_that_changed_since_it_was_read_is_not_sent(folder: Path) -> None:
    staged, node = stage_project(folder), Node()
    (folder / "7.txt").write_text("8\n" * 10)
    with pytest.raises(SpecError, match=wording("changed")):
        send(node, staged)
