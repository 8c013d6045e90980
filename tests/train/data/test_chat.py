"""Conversations: read from every common format, rendered by the template, answers marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import DataSection
from jupyter_mntrain.train.data.batches import NOT_COUNTED, rows_of, sample_of
from jupyter_mntrain.train.data.chat import CHATML, ChatWriter, messages_of
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.tokens import Tokens, model_tokens, trained_tokens
from tests.wording import wording

ASKED = [
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "Samantha."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "My mother called me so."},
]
WRITTEN = (
    "<|im_start|>user\nWho are you?<|im_end|>\n"
    "<|im_start|>assistant\nSamantha.<|endoftext|>\n"
    "<|im_start|>user\nWhy?<|im_end|>\n"
    "<|im_start|>assistant\nMy mother called me so.<|endoftext|>\n"
)
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat") / "chat.jsonl"
    rows = [{"messages": [*ASKED, {"role": "user", "content": f"And {n}?"}]} for n in range(80)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def section(data: Path, **more: Any) -> DataSection:
    fields = {"sequence_length": 128, "vocabulary_size": 300, "format": "chat", **more}
    return DataSection(source=str(data), **fields)


@pytest.fixture(scope="module")
def tokens(data: Path) -> Tokens:
    return trained_tokens(read_corpus(section(data)), section(data, answers_only=True))


@pytest.fixture(scope="module")
def tokenizer(tokens: Tokens) -> PreTrainedTokenizerBase:
    return tokens.tokenizer


@pytest.mark.parametrize(
    "row",
    [
        {"messages": ASKED},
        {"id": 3, "conversations": [{"from": m["role"], "value": m["content"]} for m in ASKED]},
        {
            "conversations": [
                {"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]}
                for m in ASKED
            ]
        },
    ],
)
def test_conversations_in_every_common_shape(row: dict[str, Any]) -> None:
    assert messages_of(row, "here") == ASKED


def test_a_question_and_its_answer() -> None:
    expected = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]
    assert messages_of({"prompt": "2+2", "completion": "4"}, "") == expected
    assert messages_of({"instruction": "2+2", "input": "", "output": "4"}, "") == expected
    with_input = messages_of({"instruction": "Add", "input": "2+2", "output": "4"}, "")
    assert with_input[0]["content"] == "Add\n\n2+2"


@pytest.mark.wording
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": "hello"}, "x.jsonl line 3: not a conversation; its fields are text"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "has no assistant turn"),
        ({"messages": [{"role": "alien", "content": "hi"}]}, "no role and content"),
        ({"messages": [{"role": "user", "content": None}]}, "no role and content"),
        ({"messages": ["hi"]}, "no role and content"),
    ],
)
def test_what_is_no_conversation_is_named(row: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        messages_of(row, "x.jsonl line 3")


@pytest.mark.parametrize("template", [None, LLAMA_3])
def test_answers_are_what_the_assistant_says(
    template: str | None, tokenizer: PreTrainedTokenizerBase
) -> None:
    writer = ChatWriter(tokenizer, template, answers_only=True)
    text, answers = writer.write(ASKED, "here")
    if template is None:
        assert (writer.template, text) == (CHATML, WRITTEN)
    assert answers is not None
    said = [text[begin:end] for begin, end in answers]
    end = "<|endoftext|>\n" if template is None else "<|eot_id|>"
    assert said == [f"Samantha.{end}", f"My mother called me so.{end}"]


def test_a_template_that_rewrites_what_was_said_is_refused(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    forgets = "{% for m in messages[-2:] %}{{ m['content'] }}\n{% endfor %}"
    writer = ChatWriter(tokenizer, forgets, answers_only=True)
    with pytest.raises(RecipeError, match=wording("rewrites earlier turns")):
        writer.write(ASKED, "line 1")
    assert ChatWriter(tokenizer, forgets, answers_only=False).write(ASKED, "").answers is None
    broken = ChatWriter(tokenizer, "{{ raise_exception('no system') }}", answers_only=False)
    with pytest.raises(
        RecipeError, match=wording("line 7: the chat template rejects it: no system")
    ):
        broken.write(ASKED, "line 7")


def test_the_loss_counts_on_answers_alone_when_asked(data: Path, tokens: Tokens) -> None:
    batch = sample_of(rows_of(tokens, section(data)), 1000)
    decode = tokens.tokenizer.decode
    said = decode(batch.labels[batch.labels != NOT_COUNTED].tolist())
    assert said.count("Samantha.<|endoftext|>") == 80
    assert "Who are you?" not in said
    assert "And 3?" not in said
    assert "Who are you?" in decode(batch.inputs.flatten().tolist())
    whole = trained_tokens(read_corpus(section(data)), section(data))
    assert whole.answers is None
    everything = sample_of(rows_of(whole, section(data)), 1000)
    assert everything.counted == everything.tokens
    assert batch.counted < everything.counted / 2


def test_the_models_own_template_and_another_that_is_named(
    data: Path, tokens: Tokens, tmp_path: Path
) -> None:
    model, mine = tmp_path / "model", tmp_path / "mine.jinja"
    tokens.tokenizer.save_pretrained(model)
    (model / "chat_template.jinja").write_text(LLAMA_3)
    mine.write_text("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    assert AutoTokenizer.from_pretrained(model).chat_template == LLAMA_3
    corpus = read_corpus(section(data))
    for more, beginning in (
        ({}, "<|start_header_id|>user"),
        ({"chat_template": str(mine)}, "user: Who"),
    ):
        found = model_tokens(corpus, section(data, **more), model, 0, cache=tmp_path / "cache")
        first = found.tokenizer.decode(found.ids[: found.ends[0]])
        assert first.startswith(beginning)
    with pytest.raises(RecipeError, match=wording("chat_template = /gone")):
        model_tokens(corpus, section(data, chat_template="/gone"), model, 0, cache=tmp_path)
