"""Giving nodes back ends the allocation and removes its folder, never what is a person's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.sources.source import NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from tests.standin.slurm_tools import SlurmTools

REQUEST = NodesRequest("slurm", 2, name="train")


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Holds the folder that SLURM tells of the job."""
    return tmp_path / "slurm" / "folder"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmSource:
    """In a folder of a person's, where commands are typed."""
    SlurmTools(tmp_path / "slurm", monkeypatch)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('mine')")
    monkeypatch.chdir(project)
    return SlurmSource(tmp_path / "state")


@pytest.mark.parametrize("place", ["", ".", "{project}", "{state}", "{state}/train-0a1b2c3d"])
def test_a_folder_that_no_submission_made_stays(
    source: SlurmSource, tmp_path: Path, told: Path, place: str
) -> None:
    kept = [tmp_path / "project" / "train.py", tmp_path / "state" / "train-0a1b2c3d" / "notes.md"]
    kept[1].parent.mkdir(parents=True)
    kept[1].write_text("mine, too")
    told.write_text(place.format(project=tmp_path / "project", state=tmp_path / "state"))
    # A job in another folder is another one, which got the number: maybe one of the person's own.
    with pytest.raises(RefusedError):
        asyncio.run(source.give_back("7", REQUEST))
    assert all(path.exists() for path in kept)
    assert (tmp_path / "slurm" / "state").read_text() == "PENDING"


@pytest.mark.parametrize("has_run", [False, True])
def test_the_folder_of_a_submission_goes_unless_it_holds_records(
    source: SlurmSource, tmp_path: Path, told: Path, has_run: bool
) -> None:
    command = SlotCommand(("agent",), secrets={"TOKEN": "secret"})
    asyncio.run(source.submit(REQUEST, command))
    folder = Path(told.read_text().strip())
    assert folder.parent == tmp_path / "state"
    if has_run:
        (folder / "slurm-0").mkdir()
    asyncio.run(source.give_back("7", REQUEST))
    assert folder.exists() == has_run
    told.write_text(str(folder))  # SLURM knows it for minutes
    asyncio.run(source.give_back("7", REQUEST))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and _text(path) == "secret"]


@pytest.mark.parametrize("place", ["", "{project}", "{state}/other-0a1b2c3d"])
def test_another_job_that_got_the_number_is_none_of_ours(
    source: SlurmSource, tmp_path: Path, told: Path, place: str
) -> None:
    told.write_text(place.format(project=tmp_path / "project", state=tmp_path / "state"))
    (tmp_path / "slurm" / "state").write_text("RUNNING")
    seen = asyncio.run(source.look("7", REQUEST))
    assert (seen.state, [slot.host for slot in seen.slots]) == ("unknown", ["", ""])
    assert seen.problem is not None
    for act in (source.save, source.give_back, source.directory):
        with pytest.raises(RefusedError):
            asyncio.run(act("7", REQUEST))
    assert not (tmp_path / "slurm" / "canceled").exists()


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
