"""What the doctor asks for a job: paths of its recipe, modules of its script."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.doctor.workload.asked_paths import (
    imported_names,
    question_of_recipe,
    question_of_script,
)
from jupyter_mntrain.workload.workload import from_cell


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import torch.nn as nn, json", {"torch", "json"}),
        ("from transformers.models import llama", {"transformers"}),
        ("from . import mine\nfrom .other import x", set()),
        ("from __future__ import annotations", set()),
        ("try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None", set()),
        ("def main():\n    import pandas", {"pandas"}),
        ("if True:\n    import wandb", {"wandb"}),
        ("", set()),
    ],
)
def test_modules_that_a_script_cannot_do_without(text: str, names: set[str]):
    assert imported_names(text) == names


def test_modules_beside_a_script_may_be_sent_with_it(tmp_path: Path):
    (tmp_path / "mine.py").touch()
    (tmp_path / "package").mkdir()
    asked = question_of_script("import mine, package, torch", tmp_path, "conda:lab")
    assert (asked.modules, asked.python) == (("torch",), "conda:lab")


def test_large_things_are_asked_for_by_name(tmp_path: Path):
    text = '[model]\npath = "models:llama"\n[data]\nsource = "corpus.txt"\n'
    asked = question_of_recipe(from_cell(text, directory=tmp_path).recipe)
    assert [(one.use, one.path) for one in asked.paths] == [
        ("model", "models:llama"),
        ("data", str(tmp_path / "corpus.txt")),
    ]
