"""Embedding and head trained whole next to adapters: resumed exactly, exported alike, with rows of
added tokens, and read by peft.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train import parse_recipe, train
from jupyter_mntrain.train.checkpoint.export import FOLDER
from jupyter_mntrain.train.checkpoint.keeping import export_checkpoint
from jupyter_mntrain.train.checkpoint.resuming import find_newest
from jupyter_mntrain.train.model.weights import SINGLE_FILE
from jupyter_mntrain.train.world import join_world
from tests.train.checkpoint.saved import EVERY, SETTINGS, STEPS, forget
from tests.train.test_command import write_text

MARKERS = ["<|im_start|>", "<|im_end|>"]
HELD = "data.vocabulary_size=300"


def base_of(folder: Path, *, is_tied: bool) -> Path:
    """A model that has learned a little."""
    tied = f"model.tie_embeddings={str(is_tied).lower()}"
    changes = (f"data.source={write_text(folder / 'text')}", *SETTINGS, tied)
    more = ("checkpoint.interval_steps=0", "output.at_end=true", f"output.directory={folder / 'b'}")
    train(parse_recipe("", [*changes, "checkpoint.at_end=false", *more]))
    return folder / "b"


def recipe_of(base: Path, folder: Path) -> Recipe:
    talk = folder / "talk.jsonl"
    rows = ({"messages": [{"role": "user", "content": f"{n}?"}, ANSWER]} for n in range(80))
    talk.write_text("".join(json.dumps(one) + "\n" for one in rows))
    usual = [one for one in SETTINGS if one not in {"model.preset=llama-tiny", HELD}]
    return parse_recipe(
        "",
        [
            *usual,
            f"model.path={base}",
            f"data.source={talk}",
            f"checkpoint.directory={folder / 'kept'}",
            f"output.directory={folder / 'end'}",
            *("data.format=chat", "data.packing=best-fit", "data.sequence_length=48"),
            f"tokens.add={MARKERS}",
            *("adapters.rank=4", 'adapters.train_whole=["embedding", "head"]'),
            *("optimizer.learning_rate=1e-2", "output.at_end=true", "output.replace=true"),
        ],
    )


ANSWER = {"role": "assistant", "content": "yes, that is so"}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("is_tied", [True, False])
def test_added_tokens_are_learned_beside_adapters(tmp_path: Path, *, is_tied: bool) -> None:
    base = base_of(tmp_path, is_tied=is_tied)
    recipe = recipe_of(base, tmp_path)
    whole = train(recipe)
    kept, end, target = tmp_path / "kept", tmp_path / "end", tmp_path / "exported"
    with join_world("cpu", 60.0) as world:
        source = CheckpointDirectory(kept)
        found = find_newest(world, source)
        assert found is not None
        export_checkpoint(world, source, found, target, recipe=recipe, run="r", progress=unwatched)
    written, exported = (load_file(one / SINGLE_FILE) for one in (end, target))
    assert written.keys() == exported.keys()
    assert all(torch.equal(one, exported[name]) for name, one in written.items())

    before = load_file(base / SINGLE_FILE)["model.embed_tokens.weight"]
    after = written["model.embed_tokens.weight"]
    assert len(after) == len(before) + len(MARKERS)
    assert not torch.allclose(after[: len(before)], before, atol=1e-3)
    merged = AutoModelForCausalLM.from_pretrained(end, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(end)
    ids = tokenizer.apply_chat_template([ANSWER], return_tensors="pt", return_dict=True)[
        "input_ids"
    ]
    assert len(before) in ids, "a marker is one token"
    beside = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    beside.resize_token_embeddings(len(after), mean_resizing=False)
    adapter = PeftModel.from_pretrained(beside, end / FOLDER).eval()
    with torch.no_grad():
        assert torch.allclose(adapter(ids).logits, merged(ids).logits, atol=1e-4)

    forget(kept, STEPS)
    again = train(recipe)
    assert again.losses == whole.losses[-EVERY:]
