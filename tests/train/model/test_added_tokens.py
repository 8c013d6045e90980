"""Added tokens: in the tokenizer, in conversations, and in a model's rows for tokens."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.checkpoint.export import describe
from jupyter_mntrain.train.data.chat import CHATML_OF_TOKENS, ChatWriter
from jupyter_mntrain.train.data.tokens import Tokens
from jupyter_mntrain.train.model.added_tokens import add_tokens, fit_config
from jupyter_mntrain.train.model.decoder import HEAD, read_config
from jupyter_mntrain.train.model.stages import build_modules
from tests.train.families import write_model
from tests.wording import wording

MARKERS = ("<|im_start|>", "<|im_end|>")
ASKED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def tokenizer_of(size: int) -> PreTrainedTokenizerBase:
    """Bytes, an end of text, and words that nothing yields."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "<end>", *(f"word{n}" for n in range(size - len(alphabet) - 1))]
    made = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


def recipe_of(directory: Path) -> Recipe:
    return parse_recipe("", [f"model.path={directory}", f"tokens.add={[*MARKERS]}"])


def test_a_conversation_has_its_markers_as_tokens() -> None:
    tokenizer = tokenizer_of(300)
    assert len(tokenizer.encode("<|im_start|>")) == len("<|im_start|>")
    add_tokens(tokenizer, MARKERS)
    writer = ChatWriter(tokenizer, None, answers_only=True)
    written = writer.write(ASKED, "here")
    ids = tokenizer.encode(written.text, add_special_tokens=False)
    assert [ids.count(one) for one in (300, 301)] == [2, 2]
    assert written.answers is not None
    ((begin, end),) = written.answers
    assert written.text[begin:end].startswith("yo<|im_end|>")


def test_a_token_that_exists_is_refused() -> None:
    with pytest.raises(
        RecipeError, match=wording("<end> is a token already, with id 256")
    ) as found:
        add_tokens(tokenizer_of(300), ("<end>",))
    assert "\n" not in str(found.value)
    with pytest.raises(RecipeError, match=wording("is listed twice")):
        parse_recipe("", ['tokens.add=["<a>", "<a>"]'])


@pytest.mark.parametrize(("family", "padded"), [("granite", 0), ("gpt2", 0), ("gpt2", 5)])
def test_rows_for_tokens_are_the_mean_of_the_others(
    family: str, padded: int, tmp_path: Path
) -> None:
    """Tied and not, over two stages, and where the model has rows that no token uses."""
    model = write_model(family, tmp_path)
    known = model.config.vocab_size - padded
    tokenizer = tokenizer_of(known)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2, "top_k": 7}')
    recipe = recipe_of(tmp_path)
    config = read_config(recipe.model)
    add_tokens(tokenizer, recipe.tokens.add)
    added = fit_config(config, tokenizer, CHATML_OF_TOKENS, recipe.tokens.add)
    assert added == (known, known + 1)
    assert config.vocab_size == max(known + 2, known + padded)
    forecast = model_config(recipe)
    assert forecast is not None
    assert forecast["vocab_size"] >= config.vocab_size

    layout, cpu = lay_out(recipe, 2, config.num_hidden_layers), torch.device("cpu")
    parts = [build_modules(recipe, config, layout, rank, cpu, added=added) for rank in (0, 1)]
    stages = [stage for some in parts for stage in some.values()]
    weights = {name: one for stage in stages for name, one in stage.weights().items()}
    for name, old in (
        (stages[0].family.embedding_weight, model.get_input_embeddings().weight),
        (HEAD, model.get_output_embeddings().weight),
    ):
        rows = weights[name]
        assert torch.equal(rows[:known], old[:known])
        expected = old[:known].double().mean(0).float()
        assert torch.equal(rows[list(added)], expected.expand(2, -1))

    out = tmp_path / "out"
    tokens = Tokens(
        np.zeros(0, np.int32), np.zeros(0, np.int64), None, "", tokenizer, CHATML_OF_TOKENS
    )
    describe(recipe, config, tokens, out)
    saved = AutoTokenizer.from_pretrained(out)
    assert saved.convert_tokens_to_ids([*MARKERS]) == [*added]
    assert saved.eos_token == MARKERS[1]
    written = saved.apply_chat_template(ASKED, tokenize=False)
    assert written == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
    settings = msgspec.json.decode((out / "generation_config.json").read_bytes())
    assert settings == {"eos_token_id": [added[1], 2], "top_k": 7}
    read = AutoModelForCausalLM.from_config(read_config(recipe_of(out).model))
    assert read.get_input_embeddings().weight.shape == weights[HEAD].shape


@pytest.mark.parametrize("way", ["own markers", "a template of the recipe"])
def test_a_model_ends_with_what_it_was_trained_to_end_with(way: str, tmp_path: Path) -> None:
    """However its marker came in: config, tokenizer and generation settings have it."""
    model = write_model("granite", tmp_path)
    tokenizer = tokenizer_of(model.config.vocab_size - len(MARKERS))
    add_tokens(tokenizer, MARKERS)  # before the model was published
    template = CHATML_OF_TOKENS if way == "own markers" else f"{{# mine #}}{CHATML_OF_TOKENS}"
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2, "top_k": 7}')
    recipe = parse_recipe("", [f"model.path={tmp_path}"])
    config = read_config(recipe.model)
    assert fit_config(config, tokenizer, template, ()) == ()
    end = tokenizer.convert_tokens_to_ids(MARKERS[1])
    assert config.eos_token_id == [end, 2]
    out = tmp_path / "out"
    nothing = (np.zeros(0, np.int32), np.zeros(0, np.int64), None)
    describe(recipe, config, Tokens(*nothing, "", tokenizer, template), out)
    settings = msgspec.json.decode((out / "generation_config.json").read_bytes())
    assert settings == {"eos_token_id": [end, 2], "top_k": 7}
    assert read_config(parse_recipe("", [f"model.path={out}"]).model).eos_token_id == [end, 2]
    saved = AutoTokenizer.from_pretrained(out)
    assert saved.chat_template == template
    assert saved.eos_token == (MARKERS[1] if way == "own markers" else "<end>")

    fit_config(config, tokenizer, None, ())  # text: nothing is said with markers
    assert config.eos_token_id == [end, 2]
