"""Job files come home: parts from several nodes into one folder, and nothing without a word."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.files.job_files import job_files, wanted_files
from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.cluster.files import job_files as module
from jupyter_mntrain.cluster.files.job_files import PulledFiles, fetch_job_files, read_job_file
from jupyter_mntrain.launch.files import arriving
from jupyter_mntrain.launch.files.arriving import PARTIAL
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import MOST_FILES
from jupyter_mntrain.launch.files.records import Hashing, JobFiles, LargeFile, WantedFiles
from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from tests.standin.jobs import JOB, record
from tests.waiting import until
from tests.wording import says

MIB = 1 << 20


class Node(FileCalls):
    """An agent's files, without the network between."""

    def __init__(self, node: str, state: Path) -> None:
        self.node = node
        self.work = state / "jobs" / JOB / "attempt-1" / "work"
        self.work.mkdir(parents=True)
        self.pieces_read = 0
        self.before_piece: Callable[[], object] = bool
        self._directory, self._record = state / "jobs" / JOB, record(0, "succeeded")
        self._book = TransferBook(LargeRoots(state))

    def write(self, **files: bytes) -> None:
        for name, content in files.items():
            path = self.work / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def listed(self) -> dict[str, str]:
        """What is left out here, and why."""
        return job_files(self._record, self._directory).left_out

    async def job_files(self, job_id: JobId, path: str = "", most: int = MOST_FILES) -> JobFiles:
        assert job_id == JOB
        return job_files(self._record, self._directory, path, most)

    async def offered(self, job_id: JobId, wanted: WantedFiles) -> Hashing:
        find = partial(wanted_files, self._record, self._directory, wanted)
        return self._book.offer(job_id, wanted, find)

    async def piece(self, transfer: str, piece: int) -> bytes:
        self.before_piece()
        self.pieces_read += 1
        return self._book.read(transfer, piece)


@pytest.fixture
def nodes(tmp_path: Path) -> list[Node]:
    return [Node(name, tmp_path / name) for name in ("node1", "node2")]


def fetch(nodes: list[Node], to: Path, path: str = "") -> PulledFiles:
    return asyncio.run(fetch_job_files(JOB, nodes, path, to, SILENT))


def tree(folder: Path) -> dict[str, bytes]:
    files = (one for one in folder.rglob("*") if one.is_file())
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in files}


def refused(nodes: list[Node], to: Path, path: str = "") -> MntrainError:
    with pytest.raises(MntrainError) as caught:
        fetch(nodes, to, path)
    assert not to.exists()
    return caught.value


def test_parts_of_a_checkpoint_on_two_nodes_come_into_one_folder(
    nodes: list[Node], tmp_path: Path
) -> None:
    nodes[0].write(ckpt__shard0=b"0" * 3 * MIB, ckpt__config=b"{}", empty=b"")
    nodes[1].write(ckpt__shard1=b"1" * 100, ckpt__config=b"{}")
    pulled = fetch(nodes, tmp_path / "home")
    assert tree(tmp_path / "home") == {
        "ckpt/shard0": b"0" * 3 * MIB,
        "ckpt/shard1": b"1" * 100,
        "ckpt/config": b"{}",
        "empty": b"",
    }
    assert (pulled.count, pulled.size_bytes) == (4, 3 * MIB + 102)
    assert sum(pulled.nodes.values()) == pulled.size_bytes
    assert pulled.nodes["node2"] >= 100
    assert not (tmp_path / PARTIAL).exists()


def test_one_file_and_one_folder_have_the_name_that_they_are_given(
    nodes: list[Node], tmp_path: Path
) -> None:
    nodes[0].write(out__a=b"a", out__deep__b=b"b", outer=b"c")
    fetch(nodes, tmp_path / "file", "out/a")
    assert (tmp_path / "file").read_bytes() == b"a"
    fetch(nodes, tmp_path / "folder", "out")
    assert tree(tmp_path / "folder") == {"a": b"a", "deep/b": b"b"}
    assert "nothing" in refused(nodes, tmp_path / "none", "nothing").cause


def test_what_is_no_file_is_refused_with_the_reason(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(model=b"m")
    os.mkfifo(nodes[0].work / "pipe")
    (nodes[0].work / "elsewhere").symlink_to(tmp_path)
    for name, why in nodes[0].listed().items():
        error = refused(nodes, tmp_path / "home", name)
        assert error.kind is Kind.NO_FILE
        assert says(f"{name} of job {JOB} is left out: {why}", error.cause)


def test_files_of_one_name_that_differ_are_in_a_folder_of_each_node(
    nodes: list[Node], tmp_path: Path
) -> None:
    nodes[0].write(
        log=b"rank 0", same=b"1", hydra__config=b"{}", size=b"1", mine=b"0", deep__x=b"1"
    )
    nodes[1].write(log=b"rank 1", same=b"1", hydra__config=b"{}", size=b"12", deep__x=b"2")
    pulled = fetch(nodes, tmp_path / "home")
    assert tree(tmp_path / "home") == {
        "same": b"1",
        "hydra/config": b"{}",
        "mine": b"0",
        "node1/log": b"rank 0",
        "node2/log": b"rank 1",
        "node1/size": b"1",
        "node2/size": b"12",
        "node1/deep/x": b"1",
        "node2/deep/x": b"2",
    }
    assert pulled.differ == ("deep/x", "log", "size")
    assert pulled.folders == {"node1": "node1", "node2": "node2"}
    assert (pulled.count, pulled.size_bytes) == (9, sum(pulled.nodes.values()))
    fetch(nodes, tmp_path / "deep", "deep")
    assert tree(tmp_path / "deep") == {"node1/x": b"1", "node2/x": b"2"}
    fetch(nodes, tmp_path / "log", "log")
    assert tree(tmp_path / "log") == {"node1/log": b"rank 0", "node2/log": b"rank 1"}
    assert fetch(nodes[1:], tmp_path / "one").differ == ()
    assert (tmp_path / "one" / "log").read_bytes() == b"rank 1"


def test_only_those_that_differ_are_apart(nodes: list[Node], tmp_path: Path) -> None:
    names = [f"f{number:03}" for number in range(300)]
    differ = {"f007", "f008", "f150", "f299"}
    for node in nodes:
        node.write(**{name: (node.node if name in differ else name).encode() for name in names})
        node.write(model=b"m" * 3 * MIB)
    pulled = fetch(nodes, tmp_path / "home")
    assert set(pulled.differ) == differ
    assert len(tree(tmp_path / "home")) == 301 + len(differ)


def test_of_very_many_that_differ_nothing_is_lost(nodes: list[Node], tmp_path: Path) -> None:
    for node in nodes:
        node.write(**{f"f{number:03}": f"{node.node} {number}".encode() for number in range(300)})
    assert len(fetch(nodes, tmp_path / "home").differ) == 300
    there = tree(tmp_path / "home")
    assert len(there) == 600
    assert there["node2/f042"] == b"node2 42"


def test_of_three_nodes_one_differs(nodes: list[Node], tmp_path: Path) -> None:
    nodes.append(Node("node3", tmp_path / "node3"))
    for node in nodes:
        node.write(log=b"another" if node.node == "node3" else b"the one", same=b"1")
    fetch(nodes, tmp_path / "home")
    there = tree(tmp_path / "home")
    assert there.pop("same") == b"1"
    assert there == {"node1/log": b"the one", "node2/log": b"the one", "node3/log": b"another"}


def test_a_name_that_is_a_file_and_a_folder_is_apart(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(out=b"a file", node1=b"a name that is taken")
    nodes[1].write(out__deep__x=b"x", NODE2__y=b"y")
    pulled = fetch(nodes, tmp_path / "home")
    assert tree(tmp_path / "home") == {
        "node1": b"a name that is taken",
        "node1_/out": b"a file",
        "node2_/out/deep/x": b"x",
        "NODE2/y": b"y",
    }
    assert pulled.folders == {"node1": "node1_", "node2": "node2_"}


def test_what_differs_goes_on_where_it_was(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(log=b"0" * MIB + b"end", model=b"m" * 3 * MIB)
    nodes[1].write(log=b"1" * MIB + b"ending", model=b"m" * 3 * MIB)
    away(nodes[1], 1)
    refused(nodes, tmp_path / "home")
    nodes[0].write(log=b"0" * MIB + b"ending")
    nodes[1].before_piece = bool
    read = sum(node.pieces_read for node in nodes)
    fetch(nodes, tmp_path / "home")
    assert sum(node.pieces_read for node in nodes) - read < 7
    there = tree(tmp_path / "home")
    assert {name: len(content) for name, content in there.items()} == {
        "model": 3 * MIB,
        "node1/log": MIB + 6,
        "node2/log": MIB + 6,
    }


def test_what_was_cut_off_goes_on_where_it_was(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1)  # else a cut loses what is on its way
    node, content = nodes[0], [bytes([number]) * MIB for number in range(1, 13)]
    for number, one in enumerate(content):
        node.write(**{f"part{number}": one})

    for after in (3, 7):

        def cut(after: int = after) -> None:
            if node.pieces_read == after:
                raise RefusedError("the connection broke")

        node.before_piece = cut
        refused([node], tmp_path / "home")
    node.before_piece = bool
    fetch([node], tmp_path / "home")
    assert tree(tmp_path / "home") == {f"part{n}": one for n, one in enumerate(content)}
    assert node.pieces_read == len(content)


def test_a_file_that_changes_meanwhile_is_said_and_the_rest_stays(
    nodes: list[Node], tmp_path: Path
) -> None:
    nodes[0].write(old=b"1" * MIB, growing=b"2" * MIB)
    nodes[0].before_piece = lambda: nodes[0].write(growing=b"3" * MIB)
    assert refused(nodes, tmp_path / "home").fix
    nodes[0].before_piece = bool
    nodes[0].write(gone=b"")
    shutil.move(nodes[0].work / "old", nodes[0].work / "new")
    fetch(nodes, tmp_path / "home")
    assert tree(tmp_path / "home") == {"new": b"1" * MIB, "growing": b"3" * MIB, "gone": b""}


def test_a_file_that_shrinks_while_its_node_reads_it_keeps_no_other_back(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes[0]
    node.write(latest=b"1" * 2 * MIB, model=b"2" * 3 * MIB, removed=b"3")

    def find(wanted: WantedFiles) -> tuple[Path, tuple[LargeFile, ...]]:
        found = wanted_files(node._record, node._directory, wanted)
        node.write(latest=b"it is saved again")
        (node.work / "removed").unlink(missing_ok=True)
        return found

    async def offered(job_id: JobId, wanted: WantedFiles) -> Hashing:
        return node._book.offer(job_id, wanted, partial(find, wanted))

    with monkeypatch.context() as patch:
        patch.setattr(node, "offered", offered)
        error = refused([node], tmp_path / "home")
    assert error.kind is Kind.OUT_OF_TURN
    assert "latest" in error.cause
    assert "model" not in error.cause
    read = node.pieces_read
    fetch([node], tmp_path / "home")
    assert tree(tmp_path / "home") == {"latest": b"it is saved again", "model": b"2" * 3 * MIB}
    assert node.pieces_read == read + 1


def test_a_full_disk_here_is_said_before_anything_comes(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[0].write(model=b"1" * MIB)
    monkeypatch.setattr(arriving, "SPARE_BYTES", 1 << 62)
    assert says("free", refused(nodes, tmp_path / "home").cause)
    assert nodes[0].pieces_read == 0


def test_a_hole_stays_one(nodes: list[Node], tmp_path: Path) -> None:
    with (nodes[0].work / "sparse").open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(70 * MIB)
        file.write(b"end")
    fetch(nodes, tmp_path / "home")
    came = (tmp_path / "home" / "sparse").stat()
    assert came.st_size == 70 * MIB + 3
    assert came.st_blocks * 512 <= 4 * MIB
    assert nodes[0].pieces_read == 1


def test_two_at_once_do_not_take_each_others_files(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(mine=b"1" * MIB)
    nodes[1].write(other=b"2" * MIB)
    refusals = []

    def meanwhile() -> None:
        nodes[0].before_piece = bool
        # As another command would, in a loop of its own.
        begun = threading.Thread(
            target=lambda: refusals.append(refused(nodes[1:], tmp_path / "other"))
        )
        begun.start()
        begun.join()

    nodes[0].before_piece = meanwhile
    fetch(nodes[:1], tmp_path / "home")
    assert tree(tmp_path / "home") == {"mine": b"1" * MIB}
    (error,) = refusals
    assert error.kind is Kind.OUT_OF_TURN
    fetch(nodes[1:], tmp_path / "other")
    assert tree(tmp_path / "other") == {"other": b"2" * MIB}
    assert not (tmp_path / PARTIAL).exists()


def test_what_is_made_meanwhile_is_not_overwritten(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(model=b"1" * MIB)
    nodes[0].before_piece = lambda: (tmp_path / "home").write_bytes(b"somebody's")
    with pytest.raises(RefusedError):
        fetch(nodes, tmp_path / "home", "model")
    assert (tmp_path / "home").read_bytes() == b"somebody's"
    fetch(nodes, tmp_path / "elsewhere", "model")
    assert nodes[0].pieces_read == 1


def test_what_is_refused_leaves_nothing(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[0].write(model=b"1")
    monkeypatch.setattr(arriving, "SPARE_BYTES", 1 << 62)
    refused(nodes, tmp_path / "home")
    assert not (tmp_path / PARTIAL).exists()


def away(node: Node, after: int) -> None:
    """The node does not answer any more once it has given so many pieces."""

    def answer() -> None:
        if node.pieces_read >= after:
            raise NodeError("no answer", kind=Kind.UNREACHABLE)  # not one that is tried again

    node.before_piece = answer


def test_a_node_that_goes_away_is_said_and_a_second_call_goes_on(
    nodes: list[Node], tmp_path: Path
) -> None:
    for number in range(12):
        nodes[0].write(**{f"one{number}": os.urandom(MIB)})
    nodes[1].write(other=os.urandom(3 * MIB))
    away(nodes[0], 5)
    error = refused(nodes, tmp_path / "home")
    assert isinstance(error, NodeError)
    assert says("8 of 15 pieces are here", error.cause)
    nodes[0].before_piece = bool
    pulled = fetch(nodes, tmp_path / "home")
    assert (nodes[0].pieces_read, nodes[1].pieces_read) == (12, 3)
    assert pulled.nodes == {"node1": 7 * MIB, "node2": 0}
    assert len(tree(tmp_path / "home")) == 13


def test_what_another_node_has_too_comes_from_there(nodes: list[Node], tmp_path: Path) -> None:
    content = {f"part{number}": os.urandom(MIB) for number in range(8)}
    for node in nodes:
        node.write(**content)
    away(nodes[0], 2)
    fetch(nodes, tmp_path / "home")
    assert tree(tmp_path / "home") == content
    assert (nodes[0].pieces_read, nodes[1].pieces_read) == (2, 6)


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b", "a//b", "."])
def test_names_that_leave_the_folder_are_refused(
    nodes: list[Node], tmp_path: Path, name: str
) -> None:
    async def hostile(job_id: JobId, path: str = "", most: int = 0) -> JobFiles:
        return JobFiles("/", (LargeFile(name, 1), LargeFile("ok", 1)), 2, 2)

    nodes[0].job_files = hostile  # type: ignore[method-assign]
    assert isinstance(refused(nodes, tmp_path / "home"), SpecError)
    assert {one.name for one in tmp_path.iterdir()} == {"node1", "node2"}


def test_two_names_that_are_one_here_are_refused(nodes: list[Node], tmp_path: Path) -> None:
    nodes[0].write(Log=b"1", log=b"2")
    away(nodes[0], 0)
    refused(nodes, tmp_path / "home")
    # As on a disk for which large and small letters are the same.
    (here,) = (tmp_path / PARTIAL).iterdir()
    (here / "tree" / "log").unlink()
    (here / "tree" / "log").hardlink_to(here / "tree" / "Log")
    assert says("Log and log", refused(nodes, tmp_path / "home").cause)


def test_a_file_that_always_grows_is_read_once(nodes: list[Node], tmp_path: Path) -> None:
    node, begun = nodes[0], threading.Event()
    node.write(log=b"1" * MIB, model=b"2" * MIB)
    book, looks = node._book, []

    def find() -> tuple[Path, tuple[LargeFile, ...]]:
        node.write(log=b"1" * (MIB + len(looks)))
        looks.append(1)
        return wanted_files(node._record, node._directory, WantedFiles())

    # Another reading is on its way, so that nothing is read before somebody asks again.
    book._thread.submit(begun.wait)
    try:
        for _ in range(3):
            assert book.offer(JOB, WantedFiles(), find).manifest is None
    finally:
        begun.set()
    until(lambda: book.offer(JOB, WantedFiles(), find).manifest is not None, "it to be read")
    assert len(looks) == 1


def test_one_file_is_read_from_its_beginning(nodes: list[Node]) -> None:
    nodes[0].write(out__a=os.urandom(3 * MIB), out__b=b"")

    async def read(path: str) -> bytes:
        size, pieces = await read_job_file(JOB, nodes[0], path)
        content = b"".join([piece async for piece in pieces])
        assert len(content) == size
        return content

    assert asyncio.run(read("out/a")) == (nodes[0].work / "out" / "a").read_bytes()
    assert asyncio.run(read("out/b")) == b""
    for path in ("out", "none", "../work/out/a"):
        with pytest.raises(RefusedError):
            asyncio.run(read(path))
    nodes[0].before_piece = lambda: nodes[0].write(out__a=os.urandom(3 * MIB))
    with pytest.raises(RefusedError) as caught:
        asyncio.run(read("out/a"))
    assert "out/a" in caught.value.cause


@pytest.mark.slow
def test_more_files_than_a_list_shows_come_home_at_once(nodes: list[Node], tmp_path: Path) -> None:
    count = MOST_FILES + 1
    for number in range(count):
        path = nodes[0].work / f"folder{number % 7}" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    assert len(asyncio.run(nodes[0].job_files(JOB)).files) == MOST_FILES
    assert fetch(nodes, tmp_path / "home").count == count
    came = tree(tmp_path / "home")
    assert len(came) == count
    assert all(name.endswith(f"/{text.decode()}.json") for name, text in came.items())
