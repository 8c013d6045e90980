"""Job files: what a job wrote, and not what was sent with it; what is no file is said."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.files import job_files as module
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore
from jupyter_mntrain.agent.machine.files.job_files import job_files, wanted_files, work_folder
from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.agent.machine.files.space import SMALL_BYTES, FileSpace, InUse
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.launch.files.records import CleanRequest, WantedFiles
from jupyter_mntrain.launch.project.tree import Tree, TreeFile, blob_path, encode_tree, sha256_of
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobRecord
from tests.standin.jobs import JOB, record

SENT = {"train.py": "print(1)\n", "config.yaml": "lr: 1\n"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where an attempt runs that was sent two files."""
    made = tmp_path / "jobs" / JOB / "attempt-1" / "work"
    made.mkdir(parents=True)
    for name, text in SENT.items():
        (made / name).write_text(text)
    (made.parent / "command.json").write_text(json.dumps({"project": None}))
    return made


@pytest.fixture
def job() -> JobRecord:
    return record(0, "succeeded", spec={"files": SENT})


def written(job: JobRecord, work: Path) -> list[str]:
    return [one.path for one in job_files(job, work.parents[1]).files]


def test_what_was_sent_counts_once_it_is_written_to(job: JobRecord, work: Path) -> None:
    assert written(job, work) == []
    (work / "config.yaml").write_text("lr: 2\n")
    (work / "outputs").mkdir()
    (work / "outputs" / "model.pt").write_bytes(bytes(300))
    (work / "__pycache__").mkdir()
    (work / "__pycache__" / "train.pyc").write_bytes(b"1")
    found = job_files(job, work.parents[1])
    assert [one.path for one in found.files] == ["config.yaml", "outputs/model.pt"]
    assert (found.count, found.size_bytes) == (2, 306)


def test_a_sent_project_does_not_count(job: JobRecord, work: Path, tmp_path: Path) -> None:
    file = TreeFile("lib/data.bin", sha256_of(b"data"), 4)
    tree = encode_tree(Tree((file,)))
    stored = blob_path(tmp_path / "blobs", sha256_of(tree))
    stored.parent.mkdir(parents=True)
    stored.write_bytes(tree)
    (work.parent / "command.json").write_text(json.dumps({"project": sha256_of(tree)}))
    (work / "lib").mkdir()
    (work / "lib" / "data.bin").write_bytes(b"data")
    assert written(job, work) == []
    (work / "lib" / "data.bin").write_bytes(b"Data")
    assert written(job, work) == ["lib/data.bin"]


def test_links_pipes_and_names_that_cannot_be_sent_are_said(
    job: JobRecord, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "model.pt").write_bytes(b"12")
    (work / "latest.pt").symlink_to("model.pt")
    (work / "away").symlink_to("/etc/hostname")
    (work / "folder").symlink_to(work)
    (work / "gone").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(work) + b"/\xff")).write_text("x")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        monkeypatch.chdir(work)  # a socket's path may have 108 letters
        made.bind("socket")
    (work / ("d" * 200)).mkdir()
    (work / ("d" * 200) / ("ä" * 120)).write_text("a name of 240 bytes is none too long")
    found = job_files(job, work.parents[1])
    long = f"{'d' * 200}/{'ä' * 120}"
    assert [one.path for one in found.files] == [long, "latest.pt", "model.pt"]
    assert found.left_out.keys() == {"away", "folder", "gone", "pipe", "socket", r"\udcff"}
    assert all(found.left_out.values())


def test_the_newest_attempt_has_what_earlier_ones_wrote(job: JobRecord, work: Path) -> None:
    directory = work.parents[1]
    (directory / "attempt-10" / "work").mkdir(parents=True)
    (directory / "attempt-2").mkdir()
    assert work_folder(directory).parent.name == "attempt-10"
    assert job_files(job, directory).count == 0
    assert job_files(job, directory / "nowhere").count == 0


def test_too_many_files_are_counted_and_not_listed(
    job: JobRecord, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PULLED", 3)
    for number in range(5):
        (work / f"{number}.npy").write_bytes(b"1")
    found = job_files(job, work.parents[1], most=3)
    assert (len(found.files), found.count, found.size_bytes) == (3, 5, 5)
    (work / "one").mkdir()
    (work / "one" / "few").write_bytes(b"1")
    assert len(wanted_files(job, work.parents[1], WantedFiles("one"))[1]) == 1
    with pytest.raises(RefusedError) as caught:
        wanted_files(job, work.parents[1], WantedFiles())
    assert caught.value.kind is Kind.TOO_LARGE


def test_a_folder_is_wanted_without_its_namesakes(job: JobRecord, work: Path) -> None:
    for name in ("out/a", "out/b", "outer/c", "out.txt"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x")
    base, files = wanted_files(job, work.parents[1], WantedFiles("out", without=("out/b",)))
    assert (base, [one.path for one in files]) == (work, ["out/a"])
    (work / "link").symlink_to("out")
    for path in ("../work", "link/a", "out/../out", str(work / "out")):
        with pytest.raises(RefusedError):
            wanted_files(job, work.parents[1], WantedFiles(path))


def test_files_of_jobs_are_measured_and_freed_by_job(work: Path, tmp_path: Path) -> None:
    (work / "model.pt").write_bytes(os.urandom(SMALL_BYTES))
    small = tmp_path / "jobs" / "j-00000002" / "attempt-1" / "work"
    small.mkdir(parents=True)
    (small / "train.py").write_text("1")
    book = TransferBook(LargeRoots(tmp_path))
    space = FileSpace(tmp_path, book, BlobStore(tmp_path / "blobs"))
    sizes = {one.what: one.size_bytes for one in space.look().things}
    assert sizes[f"files of {JOB}"] >= SMALL_BYTES
    assert 0 < sizes["files of 1 small job"] < SMALL_BYTES
    request = CleanRequest((JOB, "j-00000002", "j-00000003"), is_trial=False)
    cleaned = space.clean(request, InUse((), "", {"j-00000002"}))
    assert [one.what for one in cleaned.things] == [f"files of {JOB}"]
    assert cleaned.kept.keys() == {"j-00000002", "j-00000003"}
    assert not work.exists()
    assert small.exists()
    assert work.parent.exists()
