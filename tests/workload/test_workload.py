from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import MntrainError, RecipeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.workload.workload import from_cell, from_path
from tests.wording import wording

RECIPE = '[model]\npreset = "llama-tiny"\n'


def test_a_recipe_goes_by_content(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    workload = from_path(path, overrides=["train.steps=3"])
    assert workload.entry == (
        "-m", "jupyter_mntrain.train", "recipe.toml", "--set", "train.steps=3",
    )  # fmt: skip
    assert workload.files == {"recipe.toml": RECIPE}
    assert workload.name == "tiny"
    assert workload.recipe.train.steps == 3


def test_relative_paths_become_absolute_for_ranks_run_elsewhere(tmp_path):
    (tmp_path / "r.toml").write_text('[data]\nsource = "corpus.txt"\n[model]\npath = "m"\n')
    workload = from_path(tmp_path / "r.toml")
    assert f'data.source="{tmp_path}/corpus.txt"' in workload.entry
    assert f'model.path="{tmp_path}/m"' in workload.entry


def test_a_hub_id_is_a_path_only_if_there_is_such_a_folder(tmp_path):
    (tmp_path / "r.toml").write_text('[model]\npath = "org/tiny@v1"\n')
    workload = from_path(tmp_path / "r.toml")
    assert "--set" not in workload.entry
    assert from_cell('[model]\npath = "org/tiny@v1"\n', directory=tmp_path).name == "tiny"
    (tmp_path / "org" / "tiny@v1").mkdir(parents=True)
    assert f'model.path="{tmp_path}/org/tiny@v1"' in from_path(tmp_path / "r.toml").entry


def test_absolute_home_and_default_paths_are_left_alone(tmp_path):
    (tmp_path / "r.toml").write_text('[data]\nsource = "~/c.txt"\n[model]\npath = "/m"\n')
    assert "--set" not in from_path(tmp_path / "r.toml").entry


def test_a_script_keeps_its_name_and_arguments(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    workload = from_path(tmp_path / "train.py", arguments=["--lr", "3"])
    assert workload.entry == ("train.py", "--lr", "3")
    assert workload.files == {"train.py": "print(1)\n"}
    assert workload.recipe is None


def test_a_cell_is_told_apart_by_parsing(tmp_path):
    recipe = from_cell(RECIPE, directory=tmp_path)
    assert recipe.took == "the recipe in the cell"
    assert recipe.name == "llama-tiny"
    script = from_cell("import torch\nprint(torch)\n", directory=tmp_path)
    assert script.took == "the Python script in the cell"
    assert script.entry == ("cell.py",)
    with_recipe = "import train\ntext = '''\n[model]\nlayers = =\n'''\ntrain.run(text)\n"
    assert from_cell(with_recipe, directory=tmp_path).entry == ("cell.py",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.pyw", "print(1)\n"),
        ("train", "#!/usr/bin/env python3\nprint(1)\n"),
        ("train", "import torch\n"),
        ("train.v2", "from torch import nn\n"),
        ("train.pyw", "# -*- coding: latin-1 -*-\nprint('\xe9')\n"),
    ],
)
def test_a_script_is_what_python_can_run(tmp_path, name, text):
    (tmp_path / name).write_text(text, "latin-1")
    workload = from_path(tmp_path / name, arguments=["--lr", "3"])
    assert workload.entry == (name, "--lr", "3")
    assert workload.name == "train"
    (tmp_path / "bad.pyw").write_text("def f(:\n")
    with pytest.raises(SpecError) as caught:
        from_path(tmp_path / "bad.pyw")
    assert caught.value.kind is Kind.EXCEPTION


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "text", "fix"),
    [
        ("conf.json", '{"lr": 1}', "(.toml) or a Python script"),
        ("conf.yaml", "lr: 1\n", "(.toml) or a Python script"),
        ("table.csv", "1,2\n3,4\n", "--torchrun=--no-python"),
        ("run.sh", "python train.py\n", "--torchrun=--no-python run.sh"),
        ("run", "#!/bin/sh\npython train.py\n", "--torchrun=--no-python run"),
        ("demo.ipynb", '{"cells": []}', "nbconvert --to script demo.ipynb"),
        ("a.out", "\x7fELF\0\xff", "--torchrun=--no-python"),
    ],
)
def test_what_is_no_script_says_how_to_run_it(tmp_path, name, text, fix):
    (tmp_path / name).write_text(text, "latin-1")
    with pytest.raises(SpecError) as caught:
        from_path(tmp_path / name)
    assert fix in caught.value.fix


@pytest.mark.wording
def test_a_folder_with_a_main_names_it(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").touch()
    with pytest.raises(SpecError) as caught:
        from_path(tmp_path / "app")
    assert "app/__main__.py" in caught.value.fix


@pytest.mark.wording
@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("", ["empty"]),
        ("   \n", ["empty"]),
        ("import os\ndef f(:\n    pass\n", ["Python script", "line 3"]),
        ('[model]\npreset = "llama-tiny\n', ["recipe", "line 3"]),
        ("[model]\nlayers = = 3\n", ["recipe", "line 3"]),
        ("[model]\nlayerz = 3\n", ["layerz", "layers"]),
        ("# small\n\n[model]  # one\nlayers = 3\nlayers = 4\n", ["recipe", "line 6"]),
    ],
)
def test_a_cell_that_is_neither_gets_the_reason_of_the_nearer_one(tmp_path, cell, says):
    # Line 1 of a cell is the magic itself: numbers are those the editor shows.
    with pytest.raises(MntrainError) as caught:
        from_cell(cell, directory=tmp_path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for word in says:
        assert word in message


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("glod.toml", None, ["glod.toml", "gold.toml"]),
        ("gone.py", None, ["gone.py"]),
        ("broken.py", "a = 1\nb = = 2\n", ["broken.py", "line 2"]),
        ("nul.py", "a\0b", ["nul.py"]),
        ("data.csv", "1,2\n", ["data.csv", ".toml"]),
        ("latin.py", b"\xff\xfe", ["is not UTF-8 text. Fix: save it as UTF-8."]),
        ("folder.py", "DIRECTORY", ["directory"]),
    ],
)
def test_files_that_cannot_run_are_refused_with_their_line(tmp_path, name, content, says):
    (tmp_path / "gold.toml").write_text(RECIPE)
    path = tmp_path / name
    if content == "DIRECTORY":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(SpecError) as caught:
        from_path(path)
    assert len(str(caught.value).splitlines()) == 1
    for word in says:
        assert word in str(caught.value)


@pytest.mark.wording
def test_a_key_given_twice_is_named_in_the_fix(tmp_path):
    (tmp_path / "twice.toml").write_text("[train]\nsteps = 3\nsteps = 4\n")
    with pytest.raises(RecipeError) as caught:
        from_path(tmp_path / "twice.toml")
    assert caught.value.kind is Kind.BAD_RECIPE
    assert "each key once" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        (b"\xef\xbb\xbfprint('\xc3\xa9')\n", "print('é')\n"),
        (b"\xef\xbb\xbf# coding: utf-8\nx = 1\n", "# coding: utf-8\nx = 1\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "# -*- coding: utf-8 -*-\nx = 'é'\n"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'", "x = '€'"),
        (b"a = 1\r\nb = 2\r\n", "a = 1\nb = 2\n"),
    ],
)
def test_a_script_is_read_as_python_reads_it(tmp_path, content, sent):
    (tmp_path / "train.py").write_bytes(content)
    made = from_path(tmp_path / "train.py").files["train.py"]
    assert made.endswith(sent)
    assert exec_of(made) == exec_of(content)


def exec_of(source):
    """What it leaves, of bytes as Python reads them in a file."""
    found = {}
    exec(compile(source, "train.py", "exec"), found)
    return {name: value for name, value in found.items() if not name.startswith("__")}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_no_part_of_a_recipe(tmp_path, mark):
    (tmp_path / "r.toml").write_text(f"{mark}{RECIPE}", encoding="utf-8")
    assert from_path(tmp_path / "r.toml").recipe == load_recipe(tmp_path / "r.toml")
    assert from_cell(f"{mark}{RECIPE}", directory=tmp_path).recipe is not None


def test_compiling_a_script_never_warns(tmp_path):
    (tmp_path / "w.py").write_text('x = "\\d"\n')
    from_path(tmp_path / "w.py")


def test_a_script_has_no_recipe_fields_and_a_recipe_no_arguments(tmp_path):
    (tmp_path / "s.py").write_text("")
    (tmp_path / "r.toml").write_text(RECIPE)
    with pytest.raises(SpecError, match=wording("no recipe fields")):
        from_path(tmp_path / "s.py", overrides=["train.steps=1"])
    with pytest.raises(SpecError, match=wording("takes no arguments")):
        from_path(tmp_path / "r.toml", arguments=["--lr"])


def test_a_recipe_is_checked_against_the_number_of_ranks(tmp_path):
    workload = from_cell(
        RECIPE + '[pipeline]\nschedule = "1f1b"\nmicrobatches = 2\n', directory=tmp_path
    )
    workload.check(2)
    with pytest.raises(RecipeError, match=wording("microbatches")):
        workload.check(3)
