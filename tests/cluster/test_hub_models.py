"""Models of the hub in a launch: what is refused and said before anything is fetched."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster.diagnostics.doctor import _with_model
from jupyter_mntrain.cluster.files.hub_models import PATH, bring_hub_model, with_hub_commit
from jupyter_mntrain.families.hub_fetching import HubReport
from jupyter_mntrain.launch.files.hub_names import HubId
from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import MntrainError, RecipeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.recipe.stored import recipe_of
from jupyter_mntrain.workload.workload import from_cell
from tests.wording import says, wording

COMMIT = "a" * 40
ID = HubId("org/tiny")
FILES = ("config.json", "model.safetensors", "tokenizer.json")

Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Has the program that asks the hub report something, and then do something else."""
    directory = tmp_path / "snapshot"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}')
    program = tmp_path / "program"

    def tell(after: str = "", **fields: Any) -> None:
        usual = {"commit": COMMIT, "directory": str(directory), "files": FILES}
        report = HubReport(**(usual | fields))
        program.write_text(
            f"#!/bin/sh\ncat <<'END'\n{msgspec.json.encode(report).decode()}\nEND\n{after}\n"
        )
        program.chmod(0o755)

    monkeypatch.setattr(sys, "executable", str(program))
    return tell


def spec_of(text: str, *overrides: str, directory: Path) -> JobSpec:
    made = from_cell(text, directory=directory, overrides=overrides)
    return JobSpec(entry=made.entry, files=made.files, participants=(), set_in=made.set_in)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return spec_of(f'[model]\npath = "{ID}"\n', directory=tmp_path)


def bring(spec: JobSpec, *, is_fetched: bool) -> None:
    """To a node that lacks everything."""

    async def machine_facts(_: object) -> Any:
        return SimpleNamespace(paths=())

    client = SimpleNamespace(machine_facts=machine_facts, node="node1")
    live: Any = SimpleNamespace(nodes=(), client_at=lambda _: client)
    node: Any = SimpleNamespace(node_id="n-1", name="node1")
    asyncio.run(bring_hub_model(live, program_of(spec), [node], Any, SILENT, is_fetched=is_fetched))  # type: ignore[arg-type]


def test_a_model_without_a_tokenizer_is_refused_before_it_is_fetched(
    tell: Tell, spec: JobSpec, tmp_path: Path
) -> None:
    tell(files=FILES[:2])
    with pytest.raises(RecipeError, match=wording("org/tiny: no tokenizer")):
        asyncio.run(with_hub_commit(program_of(spec)))
    trains = spec_of(f'[model]\npath = "{ID}"\n[data]\ntokenizer = "train"\n', directory=tmp_path)
    placed = asyncio.run(with_hub_commit(program_of(trains)))
    assert recipe_of(placed).model.path == str(HubId(ID.repo, COMMIT).copy)  # type: ignore[union-attr]

    # What the cache has says nothing of the model, until its files are needed.
    tell(files=FILES[:2], is_offline=True, is_listed=False)
    placed = asyncio.run(with_hub_commit(program_of(spec)))
    with pytest.raises(RecipeError, match=wording("snapshot: no tokenizer")):
        bring(placed, is_fetched=True)


def test_a_setting_stays_where_it_was_chosen(tell: Tell, spec: JobSpec, tmp_path: Path) -> None:
    tell()
    assert asyncio.run(with_hub_commit(program_of(spec))).set_in[PATH] == "recipe"
    by_hand = spec_of('[model]\npath = "/llama"\n', f"{PATH}={ID}", directory=tmp_path)
    assert PATH not in asyncio.run(with_hub_commit(program_of(by_hand))).set_in
    in_panel = msgspec.structs.replace(by_hand, set_in={PATH: "panel"})
    assert asyncio.run(with_hub_commit(program_of(in_panel))).set_in[PATH] == "panel"


def test_what_the_cache_has_in_place_of_the_hub_is_said(tell: Tell, spec: JobSpec) -> None:
    notes: list[Problem] = []
    tell(is_offline=True, said="timed out")
    asyncio.run(with_hub_commit(program_of(spec), SILENT, notes.append))
    assert [COMMIT in note.cause for note in notes] == [True]


@pytest.mark.parametrize(
    ("after", "said"), [("kill -9 $$", "killed"), ("kill -11 $$", "11"), ("exit 3", "3")]
)
def test_a_program_that_dies_has_fetched_nothing(
    after: str, said: str, tell: Tell, spec: JobSpec
) -> None:
    tell(after)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(with_hub_commit(program_of(spec)))
    assert says(said, caught.value.cause)


def test_a_page_does_not_wait_for_a_fetch(tell: Tell, spec: JobSpec) -> None:
    tell()
    placed = asyncio.run(with_hub_commit(program_of(spec)))
    with pytest.raises(MntrainError) as caught:
        bring(placed, is_fetched=False)
    assert says("mntrain launch", caught.value.fix)


def test_what_the_hub_refuses_is_a_finding_of_the_doctor(tell: Tell, spec: JobSpec) -> None:
    tell(trouble="gated")
    same, problem = asyncio.run(_with_model(spec, SILENT))
    assert same == spec
    assert problem is not None
    assert problem.kind == Kind.NOT_ALLOWED
    tell()
    placed, problem = asyncio.run(_with_model(spec, SILENT))
    assert problem is None
    assert placed != spec
