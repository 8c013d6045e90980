"""Given files: names are kept, binary ones are sent, and no name stands for two."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.launch.project.stage import list_folder
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.workload.given_files import given_files, joined


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "conf" / "deep").mkdir(parents=True)
    (folder / "conf" / "a.json").write_text("{}")
    (folder / "conf" / "deep" / "b.bin").write_bytes(b"\xff")
    (tmp_path / "a.json").write_text("[]")
    return folder


def test_names_are_kept_below_this_folder(here: Path) -> None:
    given = given_files(
        ["conf/a.json", "conf/deep/../deep/b.bin", str(here.parent / "a.json")], here
    )
    assert given.texts == {"conf/a.json": "{}", "a.json": "[]"}
    assert [one.name for one in given.others.files] == ["conf/deep/b.bin"]


def test_a_folder_is_sent_whole(here: Path) -> None:
    given = given_files(["conf"], here)
    assert set(given.paths) == {"conf/a.json", "conf/deep/b.bin"}
    assert set(given_files(["."], here).paths) == set(given.paths)


def test_two_files_of_one_name_are_refused(here: Path) -> None:
    (here / "a.json").write_text("1")
    with pytest.raises(SpecError) as caught:
        given_files(["../a.json", "a.json"], here)
    assert "a.json" in caught.value.cause
    assert given_files(["a.json", "./a.json"], here).texts == {"a.json": "1"}
    with pytest.raises(SpecError):
        joined(list_folder(here), given_files(["../a.json"], here))
    project = joined(list_folder(here), given_files(["a.json", "conf"], here))
    assert sorted(one.name for one in project.files) == ["a.json", "conf/a.json", "conf/deep/b.bin"]


def test_what_is_not_there_is_refused(here: Path) -> None:
    with pytest.raises(SpecError) as caught:
        given_files(["gone.txt"], here)
    assert caught.value.kind is Kind.BAD_SPEC
