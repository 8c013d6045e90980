"""What the doctor asks for a recipe: its paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.doctor.workload.asked_paths import hub_names, question_of_job
from jupyter_mntrain.doctor.workload.contents import SameContents
from jupyter_mntrain.model.records.doctor.machine import AskedPath, FoundPath, PathUse
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.recipe.asked_paths import asked_paths
from jupyter_mntrain.workload.workload import from_cell
from tests.doctor.healthy import changed as with_facts
from tests.doctor.healthy import healthy


def asked_paths_of(text: str, directory: Path) -> tuple[AskedPath, ...]:
    recipe = from_cell(text, directory=directory).recipe
    assert recipe is not None
    return asked_paths(recipe)


def test_large_things_are_asked_for_by_name(tmp_path: Path):
    text = '[model]\npath = "models:llama"\n[data]\nsource = "corpus.txt"\n'
    asked = asked_paths_of(text, tmp_path)
    assert [(one.use, one.path) for one in asked] == [
        ("model", "models:llama"),
        ("tokenizer", "models:llama"),
        ("data", str(tmp_path / "corpus.txt")),
    ]


@pytest.mark.parametrize("path", ["org/tiny", f"models:org--tiny@{'0' * 40}"])
def test_a_model_of_the_hub_is_brought_by_the_launch(path: str, tmp_path: Path):
    text = f'[model]\npath = "{path}"\n[data]\nsource = "/corpus.txt"\n'
    asked = asked_paths_of(text, tmp_path)
    assert [one.use for one in asked] == ["data"]


def asked_for(entry: tuple[str, ...], **fields: Any) -> list[tuple[str, str]]:
    spec = JobSpec(entry=entry, participants=(Participant("node1"),), **fields)
    return [(one.use, one.path) for one in question_of_job(spec).paths]


def test_a_script_that_is_not_sent_has_to_be_there():
    assert asked_for(("/home/ann/train.py", "--fast")) == [("script", "/home/ann/train.py")]
    assert asked_for(("train.py",), files={"train.py": ""}) == []
    assert asked_for(("train.py",), workdir="/work") == [
        ("working directory", "/work"),
        ("script", "/work/train.py"),
    ]
    assert asked_for(("train.py",), workdir="/work", files={"train.py": ""}) == [
        ("working directory", "/work")
    ]
    assert asked_for(("-m", "package.train"), project="0" * 64) == []


def test_a_recipe_without_a_model_of_its_own_needs_no_tokenizer(tmp_path: Path):
    text = '[model]\npath = "/llama"\n[data]\ntokenizer = "train"\n[output]\ndirectory = "/out"\n'
    asked = asked_paths_of(text, tmp_path)
    assert [one.use for one in asked] == ["model", "output"]


@pytest.mark.parametrize(
    ("use", "changed", "level"),
    [
        ("model", {"README.md": "1"}, "passed"),
        ("model", {"original/params.json": "1"}, "passed"),
        ("model", {"pytorch_model.bin": "9"}, "passed"),
        ("model", {"config.json": "2"}, "stops"),
        ("data", {"README.md": "1"}, "passed"),
        ("data", {"part.jsonl": "2"}, "stops"),
        ("data", {"dataset_info.json": "1", "state.json": "2"}, "passed"),
        ("chat template", {"chat.jinja": "2"}, "stops"),
    ],
)
def test_only_what_the_trainer_reads_is_compared(use: PathUse, changed: dict[str, str], level: str):
    """What one node has besides, or another version of it, hurts nobody."""
    files = {"config.json": "1", "model.safetensors": "9", "part.jsonl": "1", "data.arrow": "5"}
    files |= {"chat.jinja": "1"}
    if "dataset_info.json" in changed:
        files["dataset_info.json"] = "1"
    case = healthy()
    for at, own in enumerate((files, {**files, **changed}, files)):
        found = FoundPath(use=use, path="/there", kind="folder", asked="/there", files=own)
        facts = case.nodes[at].facts
        assert facts is not None
        case = with_facts(case, at, paths=(*facts.paths, found))
    said = {one.node: one.level for one in SameContents().findings(case)}
    assert said == {"wopr": "passed", "muthur": level, "hal": "passed"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('AutoModel.from_pretrained("meta/llama")', [("model", "meta/llama")]),
        ('load_dataset("some/data", split="train")', [("data", "some/data")]),
        ('datasets.load_dataset("some/data")', [("data", "some/data")]),
        (
            'AutoModel.from_pretrained("a/b")\nAutoTokenizer.from_pretrained("a/b")',
            [("model", "a/b")],
        ),
        ('AutoModel.from_pretrained("./out/model")', []),
        ('AutoModel.from_pretrained("/models/llama")', []),
        ('AutoModel.from_pretrained("gpt2")', []),
        ("AutoModel.from_pretrained(sys.argv[1])", []),
        ('model.save_pretrained("out/model")\nAutoModel.from_pretrained("out/model")', []),
        ('OUT = "out/model"\nAutoModel.from_pretrained("out/model")', []),
    ],
)
def test_names_of_the_hub_that_a_script_spells_out(text: str, names: list[tuple[str, str]]):
    assert [(one.use, one.name) for one in hub_names(text)] == names


def test_a_jobs_own_variables_say_where_its_nodes_keep_things_of_the_hub():
    text = 'load_dataset("some/data")'
    spec = JobSpec(
        entry=("train.py",),
        participants=(Participant("node1"),),
        files={"train.py": text},
        environment={"HF_HOME": "/big/hf", "HF_TOKEN": "secret"},
    )
    asked = question_of_job(spec)
    assert [one.name for one in asked.hub] == ["some/data"]
    assert asked.hub_variables == {"HF_HOME": "/big/hf"}
