"""Needs of a script: what its text tells of modules, variables and files, and what it does not."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

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
        ("if fast:\n    import wandb", set(), set()),
        ("if __name__ == '__main__':\n    import wandb", {"wandb"}, set()),
        ("def main():\n    import pandas\nmain()", {"pandas"}, set()),
        ("@record\ndef f():\n    import a\nif __name__ == '__main__':\n    f()", {"a"}, set()),
        (
            "def f():\n    import a\nimport torch as t\nt.multiprocessing.spawn(f)",
            {"a", "torch"},
            set(),
        ),
        ("@app.command()\ndef main():\n    import a\nmain()", set(), {"a"}),
        ("def rows():\n    import a\n    yield 1\nrows()", set(), {"a"}),
        ("with suppress(ImportError):\n    import apex", set(), set()),
        ("if not ready():\n    sys.exit()\nimport late", set(), {"late"}),
        (
            "def f():\n    if not ready():\n        return\n    import late\nf()\nimport b",
            {"b"},
            {"late"},
        ),
        ("def f():\n    if not ready():\n        sys.exit()\nf()\nimport late", set(), {"late"}),
        ("import sys\nsys.path.insert(0, '..')\nimport late", {"sys"}, {"late"}),
        ("import sys\nsys.path += ['..']\nimport late", {"sys"}, {"late"}),
        ("import os\nos.system('pip install late')\nimport late", {"os"}, {"late"}),
        ("run([sys.executable, '-m', 'pip', 'install', 'late'])\nimport late", set(), {"late"}),
        ("import sys\nsys.modules['late'] = fake\nimport late", {"sys"}, {"late"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x", {"typing"}, set()),
        ("import importlib\nimportlib.import_module('apex.amp')", {"importlib", "apex"}, set()),
        ("__import__('apex')", {"apex"}, set()),
        ("import importlib\nimportlib.import_module('.mine', 'pkg')", {"importlib"}, set()),
        ("import site\nsite.addsitedir('deps')\nimport late", {"site"}, {"late"}),
        ("try:\n    sys.path.append('x')\nfinally:\n    pass\nimport late", set(), {"late"}),
        ("def f():\n    sys.path[:0] = found()\nrun = f\nrun()\nimport late", set(), {"late"}),
        ("from sys import path\npath.append('x')\nimport late", set(), {"sys", "late"}),
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
        ("import os\nif 'X' in os.environ:\n    x = os.environ['X']", set()),
        ("import os\nx = os.environ['X'] if 'X' in os.environ else 1", set()),
        ("import os\nx = 'X' in os.environ and os.environ['X']", set()),
        ("import os\nif os.getenv('X'):\n    pass\nx = os.environ['X']", set()),
        ("import os\nif os.environ.get('X') is None:\n    choose()\nx = os.environ['X']", set()),
        ("import os\nif 'X' not in os.environ.keys():\n    f()\nx = os.environ['X']", set()),
        ("import os\nif args.slurm:\n    x = os.environ['X']", set()),
        ("from contextlib import suppress\nwith suppress(KeyError):\n    os.environ['X']", set()),
    ],
)
def test_variables_that_it_takes_without_a_default(text: str, names: set[str]):
    assert whats(read_script(text).variables) == names


@pytest.mark.parametrize(
    "line",
    [
        "load_dotenv()",
        "dotenv.load_dotenv('.env')",
        "os.environ.update(read())",
        "os.environ[name] = '1'",
        "os.environ |= read()",
        "for k, v in read():\n    os.environ.setdefault(k, v)",
        "env = os.environ\nenv['DATA_ROOT'] = '1'",
        "from os import environ as env\nenv['DATA_ROOT'] = '1'",
        "os.environ.update(dict(DATA_ROOT='1'))",
        "def f():\n    for k in names:\n        os.environ[k] = '1'\ng = f\ng()",
        "settings.export_to(os.environ)",
        "try:\n    os.environ.update(read())\nexcept OSError:\n    pass",
        "exec(open('settings.py').read())",
    ],
)
def test_of_a_variable_that_it_may_set_itself_nothing_is_said(line: str):
    text = f"import os\n{line}\nroot = os.environ['DATA_ROOT']"
    assert read_script(text).variables == ()


@pytest.mark.parametrize(
    "line",
    [
        "print(dict(os.environ), os.environ.copy())",
        "subprocess.run(command, env={**os.environ, 'A': '1'})",
        "for name, value in os.environ.items():\n    print(name, os.environ[name])",
        "os.environ['A'] = os.environ.get('B', '1')",
    ],
)
def test_who_only_reads_the_environment_sets_no_variable(line: str):
    (found,) = read_script(f"import os\n{line}\nroot = os.environ['DATA_ROOT']").variables
    assert (found.what, found.is_certain) == ("DATA_ROOT", True)


def test_all_variables_that_torchrun_sets_are_there_for_ranks():
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    agent = Path(torch.origin).parent / "distributed/elastic/agent/server/local_elastic_agent.py"
    names = {*re.findall(r'"([A-Z][A-Z_]+)": ', agent.read_text())}
    assert {"RANK", "ROLE_NAME"} <= names
    assert {one for one in names if not SET_FOR_RANKS.fullmatch(one)} == set()


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
        ("from torch.utils import cpp_extension as c\nc.load('x', ['a.cpp'])", "a.cpp", True),
        ("load(name='x', sources=[os.path.join(here, 'b'), 'a.cu'])", "a.cu", True),
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
        "root = '/data'\ntry:\n    root = cfg.root\nfinally:\n    pass\nopen(root)",
        "root = '/data'\nroot, x = f()\nopen(root)",
        "root = '/data'\nfrom settings import root\nopen(root)",
        "root = '/data'\ndef f(root):\n    open(root)\nf('/other')",
        "class Settings:\n    root = '/data'\nopen(root)",
        "with suppress(OSError):\n    open('/data/a')",
    ],
)
def test_of_files_that_it_may_do_without_nothing_is_said(text: str):
    assert read_script(text).reads == ()


PARSED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
"""


@pytest.mark.parametrize("line", ["exec(open('configurator.py').read())", "globals().update(f())"])
@pytest.mark.parametrize(("words", "reads"), [((), [("/data", False)]), (("--root=/x",), [])])
def test_what_a_script_may_be_told_by_other_means_is_not_certain(
    line: str, words: tuple[str, ...], reads: list[tuple[str, bool]]
):
    found = read_script(f"root = '/data'\n{line}\nnp.load(root)", words).reads
    assert [(one.what, one.is_certain) for one in found if one.what == "/data"] == reads


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
        ("torch.cuda.set_device(local_rank)", True),
        ("torch.cuda.set_device(None)", False),
        ("train(device='cuda')", False),
        ("model.to_empty(device='cuda')", True),
        ("torch.cuda.set_device(args.local_rank)", None),
        ("model.cuda(rank)", False),
        ("device = torch.device('cuda')\nmodel.to(device)", True),
        ("device = f'cuda:{rank}'\nmodel.to(device)", True),
        ("device = 'cuda'\nexec(open('configurator.py').read())\nmodel.to(device)", None),
        (
            "device = 'cuda'\nif not torch.cuda.is_available():\n    device = 'cpu'\nx.to(device)",
            False,
        ),
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'\nx.to(device)", False),
        ("def main():\n    x.to('cuda')\nif __name__ == '__main__':\n    main()", True),
        ("if not torch.cuda.is_available():\n    sys.exit()\nx.to('cuda')", None),
        ("if not enough_gpus(2):\n    print('no')\n    sys.exit()\nx.cuda()", None),
        ("if torch.cuda.device_count() < 2:\n    exit(0)", None),
        ("if not torch.cuda.is_available():\n    raise RuntimeError('no GPU')", True),
        ("assert torch.cuda.is_available(), 'no GPU'", True),
        (f"{PARSED}x.to(args.device)", True),
        (f"{PARSED}args.device = 'cpu'\nx.to(args.device)", False),
        (f"{PARSED}args = tune(args)\nx.to(args.device)", False),
        (f"{PARSED}vars(args).update(read())\nx.to(args.device)", False),
    ],
)
def test_what_fails_without_a_gpu(text: str, is_needed: bool | None):
    """``None``: it may end where there is none."""
    found = [one.is_certain for one in read_script(text).gpus]
    assert found == ([] if is_needed is False else [is_needed is True])


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
