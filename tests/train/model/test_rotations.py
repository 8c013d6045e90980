"""Rotations that depend on a text's length: of each document by its own, and nothing is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from jupyter_mntrain.families import families
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train import TrainResult, train
from jupyter_mntrain.train.model.decoder import StageModule, read_config
from jupyter_mntrain.train.model.rotations import document_lengths
from jupyter_mntrain.train.model.stages import build_modules
from tests.searches import runs_all
from tests.train.checkpoint.saved import forget
from tests.train.equality_cases import LAYERS, VOCABULARY
from tests.train.families import small_config, whole_model, write_model
from tests.train.model.documents import Reads

CPU = torch.device("cpu")
SHORT = 8
"""Tokens that a model was first trained with; some documents are longer, some are not."""
PACKED = ((13, 7), (20,), (3, 8, 9))
LENGTH = 20
UNLIKE = ("gemma3_text", "gpt_neox", "llama", "phi3", "smollm3")
"""By layer, a part of each head, all of it, with long texts' own factors, in some layers only."""


def those_that(*kinds: str) -> pytest.MarkDecorator:
    """Families that rotate unlike each other, on request all of them, with each kind of rotations
    that transformers lets them have.
    """
    lacks = {"gpt2": {"dynamic", "longrope"}, "phi3": {"dynamic"}}
    tried = families() if runs_all() else UNLIKE
    every = [(one, kind) for one in tried for kind in kinds if kind not in lacks.get(one, ())]
    return pytest.mark.parametrize(("family", "kind"), every)


def rotations(family: str, kind: str) -> dict[str, Any]:
    """Fields of a config."""
    usual = small_config(family)
    rope = usual.rope_parameters
    if "full_attention" in rope:
        changed = {**rope, "full_attention": {**rope["full_attention"], **_of(usual, kind)}}
    else:
        changed = {**rope, **_of(usual, kind)}
    if kind == "dynamic":
        return {"rope_parameters": changed, "max_position_embeddings": SHORT}
    lengths = {"max_position_embeddings": 4 * SHORT, "original_max_position_embeddings": SHORT}
    return {"rope_parameters": changed, **lengths}


def _of(config: Any, kind: str) -> dict[str, Any]:
    if kind == "dynamic":
        return {"rope_type": kind, "factor": 7.3}
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    part = config.rope_parameters.get("partial_rotary_factor", 1.0)
    count = int(head * part) // 2
    return {
        "rope_type": kind,
        "short_factor": [1.0 + 0.1 * one for one in range(count)],
        "long_factor": [9.0 + 2.0 * one for one in range(count)],
        "original_max_position_embeddings": SHORT,
    }


def stages_of(directory: Path, count: int) -> list[StageModule]:
    recipe = parse_recipe("", [f"model.path={directory}", "pipeline.split=even"])
    config = read_config(recipe.model)
    layout = lay_out(recipe, count, LAYERS)
    built = [build_modules(recipe, config, layout, rank, CPU) for rank in range(count)]
    return [stage for of_rank in built for stage in of_rank.values()]


def packed(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and ends of the documents of each sequence."""
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in PACKED])
    most = max(map(len, PACKED))
    ends = torch.full((len(ids), most), LENGTH, dtype=torch.int32)
    for number, row in enumerate(PACKED):
        ends[number, : len(row)] = torch.tensor(row).cumsum(0)
    return positions, ends


def drawn() -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randint(VOCABULARY, (len(PACKED), LENGTH), generator=generator)


@those_that("dynamic", "longrope")
def test_a_document_is_rotated_as_a_fresh_model_rotates_it_alone(
    family: str, kind: str, tmp_path: Path
) -> None:
    """By each number of stages, whatever is packed or computed with it."""
    write_model(family, tmp_path, **rotations(family, kind))
    ids = drawn()
    positions, ends = packed(ids)
    expected = torch.empty(*ids.shape, VOCABULARY)
    for row, lengths in enumerate(PACKED):
        for begin, end in pairwise([0, *np.cumsum(lengths).tolist()]):
            with torch.no_grad():  # one that was just loaded: another would remember
                alone = whole_model(tmp_path)(input_ids=ids[row : row + 1, begin:end])
            expected[row, begin:end] = alone.logits[0]
    with torch.no_grad():
        together = whole_model(tmp_path)(input_ids=ids, position_ids=positions, use_cache=False)
    assert (together.logits - expected).abs().max() > 1e-3, "it matters"
    for count in (1, 2, 3) if runs_all() else (3,):  # a first, a middle and a last one
        parts = stages_of(tmp_path, count)
        for rows in (slice(0, 1), slice(0, 3), slice(2, 3)):
            value = ids[rows]
            for part in parts:
                value = part(value, positions[rows], ends[rows], LENGTH)
            torch.testing.assert_close(value, expected[rows], rtol=0, atol=2e-5)


def test_a_length_that_is_a_document_s_is_found_without_asking_the_device() -> None:
    positions, _ = packed(drawn())
    with Reads() as reads:
        found = document_lengths(positions)
    assert found.tolist() == [[n for n in row for _ in range(n)] for row in PACKED]
    assert not reads.seen


@those_that("default", "dynamic", "longrope")
def test_a_model_keeps_nothing_but_its_weights(family: str, kind: str, tmp_path: Path) -> None:
    """No checkpoint has anything else: a resumed run could not go on as the unbroken one."""
    write_model(family, tmp_path, **({} if kind == "default" else rotations(family, kind)))
    (whole,) = stages_of(tmp_path, 1)
    before = dict(kept_by(whole))
    assert before
    ids = drawn()
    positions, ends = packed(ids)
    for rows, length in ((slice(0, 3), LENGTH), (slice(1, 2), LENGTH), (slice(0, 1), 5)):
        seen = ends[rows] if length == LENGTH else None
        whole(ids[rows, :length], positions[rows, :length], seen, length).sum().backward()
        after = dict(kept_by(whole))
        assert after.keys() == before.keys()
        for name, one in before.items():
            now = after[name]
            same = torch.equal(now, one) if isinstance(one, torch.Tensor) else now == one
            assert same, f"{name} was {one} and is {now}"


def kept_by(whole: nn.Module) -> Iterator[tuple[str, Any]]:
    """Whatever modules hold besides parameters, by name."""
    of_torch = set(vars(nn.Module()))
    for name, module in whole.named_modules():
        held = {key: one for key, one in vars(module).items() if key not in of_torch}
        for key, one in {**held, **module._buffers}.items():
            yield f"{name}.{key}", one.clone() if isinstance(one, torch.Tensor) else _plain(one)


def _plain(one: Any) -> Any:
    return repr(one) if isinstance(one, int | float | str | bool | dict | list) else id(one)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Documents that are mostly short, and some that are long."""
    generator = np.random.default_rng(2)
    sizes = [int(one) for one in generator.choice([2, 3, 4, 5, 6, 9, 20], size=200)]
    lines = [{"text": " ".join(f"w{n % 17}" for n in range(size))} for size in sizes]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def run(data: Path, family: str, kind: str, *changes: str) -> TrainResult:
    """Six steps, with a checkpoint after three."""
    folder = data.parent
    if not (folder / "model").exists():
        write_model(family, folder / "model", **rotations(family, kind))
    words = [
        *(f"model.path={folder / 'model'}", f"data.source={data}", "data.tokenizer=train"),
        *("data.vocabulary_size=260", "data.sequence_length=48", "data.packing=best-fit"),
        *("train.device=cpu", "train.steps=6", "train.batch_size=4", "report.to=[]"),
        *("output.at_end=false", f"checkpoint.directory={folder / 'kept'}"),
        *("checkpoint.interval_steps=3", "checkpoint.keep=9", *changes),
    ]
    return train(parse_recipe("", words))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_run_depends_neither_on_microbatches_nor_on_where_it_was_resumed(
    kind: str, data: Path
) -> None:
    unbroken = run(data, "mistral", kind, "pipeline.microbatches=2")
    forget(data.parent / "kept", 6)
    again = run(data, "mistral", kind, "pipeline.microbatches=2")
    assert again.losses == unbroken.losses[3:]
    forget(data.parent / "kept", 3, 6)
    others = run(data, "mistral", kind, "pipeline.microbatches=4")
    assert others.losses == pytest.approx(unbroken.losses, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_prompts_are_continued_as_transformers_does_without_a_cache(kind: str, data: Path) -> None:
    """With one, it leaves the first tokens as they were rotated in a shorter text."""
    out, prompts = data.parent / "out", ("w1 w2", "w3 w4 w5", "w11 w2 w9 w1", "w5 w6 w7 w8")
    asked = ["evaluation.interval_steps=6", "evaluation.prompt_tokens=24"]
    asked += [f"evaluation.prompts={json.dumps(prompts)}"]
    result = run(data, "olmo2", kind, *asked, "output.at_end=true", f"output.directory={out}")
    tokenizer = AutoTokenizer.from_pretrained(out)
    for prompt, found in zip(prompts, result.samples[6], strict=True):
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        options: dict[str, Any] = {"max_new_tokens": 24, "pad_token_id": 0, "do_sample": False}
        ids = whole_model(out).generate(
            given, attention_mask=torch.ones_like(given), use_cache=False, **options
        )
        assert ids.shape[1] > SHORT
        assert found == tokenizer.decode(ids[0, given.shape[1] :], skip_special_tokens=True)
