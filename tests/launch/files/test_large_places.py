"""Places: a large thing's name means this node's own folder; a path stays one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.launch.files.large_places import place_of, told_roots
from jupyter_mntrain.model.environment import ROOTS_VARIABLE
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.workload.workload import from_cell

RECIPE = '[model]\npath = "models:llama"\n[data]\nsource = "data:c4"\n'


def test_each_node_has_its_own_place(tmp_path: Path):
    for number in (1, 2):
        folder = tmp_path / str(number)
        told = told_roots({"models": folder})
        assert place_of("models:meta/llama", told) == folder / "meta" / "llama"


def test_an_agent_tells_where_its_roots_are(tmp_path: Path):
    told = told_roots(LargeRoots(tmp_path, ["models=/data/models"]).folders)
    assert json.loads(told[ROOTS_VARIABLE]) == {
        "models": "/data/models",
        "data": str(tmp_path / "files" / "data"),
    }


@pytest.mark.parametrize("text", ["/data/llama", "corpus", "C:"])
def test_a_path_stays_a_path(text: str):
    assert place_of(text, {}) == Path(text)


def test_a_file_that_is_called_so_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models:llama").mkdir()
    assert place_of("models:llama", {}) == Path("models:llama")


@pytest.mark.parametrize("told", [{}, told_roots({"data": Path("/data")})])
def test_a_root_that_is_not_here_is_named(told: dict[str, str]):
    with pytest.raises(SpecError) as caught:
        place_of("models:llama", told)
    assert "models" in caught.value.fix


def test_what_leads_out_of_its_root_is_refused(tmp_path: Path):
    (tmp_path / "out").symlink_to("/")
    with pytest.raises(RefusedError):
        place_of("models:out", told_roots({"models": tmp_path}))
    with pytest.raises(SpecError):
        place_of("models:../x", told_roots({"models": tmp_path}))


def test_a_recipe_keeps_the_names(tmp_path: Path):
    workload = from_cell(RECIPE, directory=tmp_path)
    assert workload.recipe is not None
    assert workload.recipe.model.path == "models:llama"
    assert workload.recipe.data.source == "data:c4"
