"""Needs of a script: what its text tells of modules, variables and files, and what it does not."""

from __future__ import annotations

import pytest

from jupyter_mntrain.doctor.script.needs import SET_FOR_RANKS, Need, ScriptNeeds, read_script
from jupyter_mntrain.model.records.node import Gpu
from tests.launch.test_torchrun import placement, render, spec
from tests.standin.nodes import gpu


def whats(needs: tuple[Need, ...], *, certain: bool | None = None) -> set[str]:
    return {one.what for one in needs if certain is None or one.is_certain is certain}


@pytest.mark.parametrize(
    ("text", "certain", "maybe"),
    [
        ("import torch.nn as nn, json", {"torch", "json"}, set()),
        ("from transformers.models import llama", {"transformers"}, set()),
        ("from . import mine\nfrom .other import x", set(), set()),
        ("from __future__ import annotations", set(), set()),
        ("try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None", set(), set()),
        ("def main():\n    import pandas", set(), {"pandas"}),
        ("if fast:\n    import wandb", set(), {"wandb"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x", {"typing"}, set()),
        ("import importlib\nimportlib.import_module('apex.amp')", {"importlib", "apex"}, set()),
        ("__import__('apex')", {"apex"}, set()),
        ("with torch.device('meta'):\n    import late", {"late"}, set()),
        ("", set(), set()),
    ],
)
def test_modules_that_a_script_cannot_do_without(text: str, certain: set[str], maybe: set[str]):
    modules = read_script(text).modules
    assert whats(modules, certain=True) == certain
    assert whats(modules, certain=False) == maybe


def test_names_in_modules_that_it_cannot_do_without():
    text = "from torch.distributed.fsdp import fully_shard as f, FSDP\nfrom a import *\nimport b.c"
    text += "\ntry:\n    from d import e\nexcept ImportError:\n    e = None"
    names = read_script(text).names
    assert whats(names) == {"torch.distributed.fsdp:fully_shard", "torch.distributed.fsdp:FSDP"}


@pytest.mark.parametrize("text", ["def load(:\n    pass", "print 'x'", "  x = 1\n y = 2", "\0"])
def test_what_is_no_python_is_told_with_its_line(text: str):
    assert read_script(text).error


def test_the_line_of_an_error_is_known():
    assert read_script("import os\n\nprint 'x'\n").line == 3


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import os\nroot = os.environ['DATA_ROOT']", {"DATA_ROOT"}),
        ("from os import environ\nroot = environ['DATA_ROOT']", {"DATA_ROOT"}),
        ("import os\nroot = os.environ.get('DATA_ROOT')", set()),
        ("import os\nos.environ['X'] = '1'\ny = os.environ['X']", set()),
        ("import os\nos.environ.setdefault('X', '1')\ny = os.environ['X']", set()),
        ("import os\nrank = os.environ['RANK'], os.environ['MNTRAIN_JOB']", set()),
        ("import os\ntry:\n    x = os.environ['X']\nexcept KeyError:\n    x = 1", set()),
    ],
)
def test_variables_that_it_takes_without_a_default(text: str, names: set[str]):
    assert whats(read_script(text).variables) == names


def test_a_variable_that_the_launch_gives_is_there():
    text = "import os\nroot = os.environ['DATA_ROOT']"
    assert read_script(text, environment={"DATA_ROOT": "/data"}).variables == ()


KEPT = """
import os
from pathlib import Path

KEPT = Path(os.environ.get("KEPT") or os.environ["MNTRAIN_CHECKPOINT_DIR"])

def save(step):
    with (KEPT / f"rank-{step}").open("wb") as file:
        file.write(b"x")
"""


def test_where_a_variable_of_the_launch_has_it_write_is_certain():
    found = read_script(KEPT, environment={"KEPT": "/mnt/kept"}).writes
    assert [(one.what, one.is_certain) for one in found] == [("/mnt/kept", True)]


def test_where_the_agent_may_have_it_write_is_not_known():
    assert read_script(KEPT).writes == ()


ARGUMENTS = """
import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="/out/default")
parser.add_argument("--steps", type=int, default=10)
args = parser.parse_args()
os.makedirs(os.path.join(args.out, "runs"), exist_ok=True)
"""


@pytest.mark.parametrize(
    ("words", "path"), [((), "/out/default/runs"), (("--out", "/mnt/big"), "/mnt/big/runs")]
)
def test_where_an_argument_has_it_write_is_certain(words: tuple[str, ...], path: str):
    assert whats(read_script(ARGUMENTS, words).writes, certain=True) == {path}


@pytest.mark.parametrize(
    ("text", "path", "certain"),
    [
        ("open('/data/train.bin')", "/data/train.bin", True),
        ("from pathlib import Path\nPath('words.json').read_bytes()", "words.json", True),
        ("def f():\n    open('/data/a')", "/data/a", False),
        ("if rank == 0:\n    open('/data/a')", "/data/a", False),
        ("import torch\ntorch.load('/models/x.pt')", "/models/x.pt", True),
        ("i = f()\nopen(f'/data/shard-{i}.bin')", "/data", True),
        ("root = '/data'\nopen(root + '/a')", "/data/a", True),
    ],
)
def test_files_that_it_reads(text: str, path: str, certain: bool):
    needs = read_script(text)
    assert [(one.what, one.is_certain) for one in needs.reads] == [(path, certain)]
    assert needs.writes == ()


@pytest.mark.parametrize(
    "text",
    [
        "open(name)",
        "import os\nif os.path.exists('/data/a'):\n    open('/data/a')",
        "try:\n    open('/data/a')\nexcept OSError:\n    pass",
        "root = '/data'\nroot = f()\nopen(root + '/a')",
        "for root in roots:\n    open(root)",
    ],
)
def test_of_files_that_it_may_do_without_nothing_is_said(text: str):
    assert read_script(text).reads == ()


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("model.cuda()", True),
        ("x = torch.zeros(1, device='cuda:1')", True),
        ("x = x.to('cuda')", True),
        ("dist.init_process_group('nccl')", True),
        ("dist.init_process_group(backend='nccl')", True),
        ("if torch.cuda.is_available():\n    model.cuda()", False),
        ("x.to('cuda' if torch.cuda.is_available() else 'cpu')", False),
        ("def f():\n    model.cuda()", False),
        ("try:\n    model.cuda()\nexcept RuntimeError:\n    pass", False),
        ("dist.init_process_group('gloo')", False),
        ("torch.cuda.is_available()", False),
        ("device = torch.device('cuda')", False),
    ],
)
def test_what_fails_without_a_gpu(text: str, is_needed: bool):
    assert bool(read_script(text).gpus) is is_needed


def test_what_it_sets_of_its_environment_in_any_case():
    text = "import os\nos.environ['A'] = 'x'\nif fast:\n    os.environ['B'] = 'y'"
    assert read_script(text).sets == {"A": "x"}


def test_nothing_is_needed_by_a_script_that_says_nothing():
    assert read_script("") == ScriptNeeds()


@pytest.mark.parametrize("gpus", [(), (gpu(0), gpu(1))], ids=["CPU", "GPUs"])
def test_the_doctor_knows_all_that_a_launch_gives_its_ranks(gpus: tuple[Gpu, ...]) -> None:
    place = placement(1, nproc=2, gpus=tuple(one.index for one in gpus))
    given = render(spec(), place, gpus=gpus).environment
    assert {name for name in given if not SET_FOR_RANKS.fullmatch(name)} == set()
