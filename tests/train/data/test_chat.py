"""Conversations: read from every common format, rendered by the template, answers marked."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data.batches import sample_of
from jupyter_mntrain.train.data.chat import CHATML, DAY, ChatWriter
from jupyter_mntrain.train.data.conversations import messages_of, tools_of
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.sequences import NOT_COUNTED, rows_of
from jupyter_mntrain.train.data.tokens import (
    Tokens,
    model_tokens,
    trained_tokens,
    untrained_tokenizer,
)
from tests.train.combinations.cases import TEMPLATES
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


SILENT = {"role": "assistant", "content": " "}


@pytest.mark.wording
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": "hello"}, "x.jsonl line 3: not a conversation; its fields are text"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "has no assistant turn"),
        ({"messages": [{"role": "user", "content": "hi"}, SILENT]}, "the assistant says nothing"),
        (
            {"messages": [{"role": "alien", "content": "hi"}]},
            "a turn of the role 'alien'.*data.roles",
        ),
        ({"messages": [{"content": "hi"}]}, "a turn without a role"),
        ({"messages": [{"role": "user", "content": None}]}, "a turn without content"),
        ({"messages": [{"role": "user", "content": 4}]}, "content that is a number.*in quotes"),
        ({"messages": [{"role": "user", "content": True}]}, "content that is true or false"),
        ({"messages": ["hi"]}, "a turn without a role"),
    ],
)
def test_what_is_no_conversation_is_named(row: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        messages_of(row, "x.jsonl line 3")


def test_an_answer_may_be_nothing_but_a_call_or_a_thought() -> None:
    asks = {"role": "user", "content": "hi"}
    call = {"function": {"name": "look", "arguments": {}}}
    for more in ({"tool_calls": [call]}, {"reasoning_content": "hm"}):
        assert len(messages_of({"messages": [asks, {**SILENT, **more}]}, "")) == 2


@pytest.mark.parametrize("template", [None, LLAMA_3])
def test_answers_are_what_the_assistant_says(
    template: str | None, tokenizer: PreTrainedTokenizerBase
) -> None:
    writer = ChatWriter(tokenizer, template, answers_only=True)
    text, answers, _ = writer.write(ASKED, "here")
    if template is None:
        assert (writer.template, text) == (CHATML, WRITTEN)
    assert answers is not None
    said = [text[begin:end] for begin, end in answers]
    end = "<|endoftext|>" if template is None else "<|eot_id|>"
    assert said == [f"Samantha.{end}", f"My mother called me so.{end}"]


ALPACA = (
    "{% for m in messages %}{% if m.role == 'user' %}### Instruction: {{ m.content }}\n"
    "{% else %}### Response: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}### Response: {% endif %}"
)
"""Its question to the model ends with a space, which most tokenizers join with the first word."""


def test_an_answer_is_learned_from_its_first_letter_to_what_ends_it(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "alpaca.jinja").write_text(ALPACA)
    given = section(data, answers_only=True, chat_template=str(tmp_path / "alpaca.jinja"))
    tokens = trained_tokens(read_corpus(given), given)
    assert tokens.answers is not None
    first = tokens.ids[: tokens.ends[0]]
    said = tokens.tokenizer.decode(first[tokens.answers[: tokens.ends[0]]].tolist())
    assert said == " Samantha.\n My mother called me so.\n"


QWEN_3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}"
    "<think>\n\n</think>\n\n{% endif %}{{ m.content.split('</think>')[-1] | trim }}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""In short: the last answer has a thought, empty where it has none; earlier ones have lost it."""


def test_answers_are_found_where_the_template_writes_earlier_ones_without_their_thoughts(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    thoughtful = [dict(one) for one in ASKED]
    thoughtful[1]["content"] = "<think>\nhm\n</think>\n\nSamantha."
    writer = ChatWriter(tokenizer, QWEN_3, answers_only=True)
    text, answers, _ = writer.write(thoughtful, "here")
    assert answers is not None
    end = "<|endoftext|>"
    assert [text[begin:stop] for begin, stop in answers] == [
        f"Samantha.{end}",
        f"<think>\n\n</think>\n\nMy mother called me so.{end}",
    ]


def test_calls_are_learned_where_a_template_leaves_out_the_thoughts_before_them(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    template = (TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8")
    looking = called('{"city": "Bonn"}') | {"content": "Let me look."}
    result = {"role": "tool", "content": "31"}
    thinking = called('{"city": "Rome"}') | {"reasoning_content": "Now Rome."}
    asked, *_, answered = with_tools()["messages"]
    last = called('{"city": "Oslo"}')
    said = [asked, looking, result, thinking, result, last, result, answered]
    row = with_tools(messages=said)
    messages, tools = messages_of(row, "here"), tools_of(row, "here")
    text, answers, _ = ChatWriter(tokenizer, template, answers_only=True).write(messages, "", tools)
    assert answers is not None

    def call(city: str) -> str:
        asked = f'{{"name": "weather", "arguments": {{"city": "{city}"}}}}'
        return f"<tool_call>\n{asked}\n</tool_call><|im_end|>"

    assert [text[begin:end] for begin, end in answers] == [
        f"Let me look.\n{call('Bonn')}",
        f"<think>\nNow Rome.\n</think>\n\n{call('Rome')}",
        call("Oslo"),
        "<think>\n31 is warm.\n</think>\n\nYes.<|im_end|>",
    ]


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


def test_a_template_that_writes_a_token_that_is_lacking_names_it_and_its_file() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    template = "{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}"
    writer = ChatWriter(tokenizer, template, answers_only=True)
    with pytest.raises(RecipeError, match=wording("writes eos_token, which the tok")) as caught:
        writer.write(ASKED, "line 7")
    assert "tokenizer_config.json" in str(caught.value.problem.fix)


@pytest.mark.parametrize(
    ("name", "written"), [("llama3_2", "Today Date: 26 Jul 2024\n"), ("smollm3", "26 July 2024\n")]
)
def test_in_training_it_is_the_same_day_on_every_node(
    name: str, written: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    template = (TEMPLATES / f"{name}.jinja").read_text()
    texts = [
        ChatWriter(tokenizer, template, answers_only=False, day=day).write(ASKED, "").text
        for day in (DAY, datetime(1999, 12, 31, tzinfo=UTC), None)
    ]
    assert written in texts[0]
    assert ChatWriter(tokenizer, template, answers_only=False, day=DAY).template == template
    assert len({*texts}) == 3, "today's is another one"
    unknown = template.replace('("%d', '(1 and "%d')
    with pytest.raises(RecipeError, match=wording("calls strftime_now with")):
        assert ChatWriter(tokenizer, unknown, answers_only=False, day=DAY).dated


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


HERMES = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function | tojson }}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Writes all that a conversation may have; of reasoning, only the last."""
WEATHER = {"name": "weather", "description": "of a city", "parameters": {"type": "object"}}


def called(arguments: Any) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def with_tools(**more: Any) -> dict[str, Any]:
    said = [
        {"role": "user", "content": "Is it warm?"},
        called('{"city": "Bonn"}'),
        {"role": "tool", "content": "31", "tool_call_id": "1"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "31 is warm."},
    ]
    return {"messages": said, "tools": [WEATHER], **more}


def test_an_assistant_that_speaks_first(tokenizer: PreTrainedTokenizerBase) -> None:
    first = [{"role": "assistant", "content": "Hello."}, *ASKED]
    system = {"role": "system", "content": "assistant\nHello."}
    rejects = "{% if messages[-1].role == 'system' %}{{ raise_exception('alone') }}{% endif %}"
    for template in (None, LLAMA_3, rejects + CHATML):
        writer = ChatWriter(tokenizer, template, answers_only=True)
        end = "<|eot_id|>" if template == LLAMA_3 else "<|endoftext|>"
        for messages in (first, [system, *first]):
            text, answers, _ = writer.write(messages, "")
            assert answers is not None
            said = [text[begin:end] for begin, end in answers]
            spoken = ("Hello.", "Samantha.", "My mother called me so.")
            assert said == [f"{one}{end}" for one in spoken]
            assert "system" not in said[0]


def test_tools_calls_and_reasoning_are_written(tokenizer: PreTrainedTokenizerBase) -> None:
    row = with_tools()
    messages, tools = messages_of(row, "here"), tools_of(row, "here")
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Bonn"}
    text, answers, _ = ChatWriter(tokenizer, HERMES, answers_only=True).write(messages, "", tools)
    assert answers is not None
    said = [text[begin:end] for begin, end in answers]
    assert json.loads(said[0].split("call>")[1].removesuffix("</")) == {
        "name": "weather",
        "arguments": {"city": "Bonn"},
    }
    assert said[1] == "<think>31 is warm.</think>Yes.<|im_end|>"
    assert "of a city" in text
    # Tables hold unlike objects as JSON, and OpenAI had another form before.
    old = {"role": "assistant", "content": None, "function_call": called("{}")["tool_calls"][0]}
    as_text = {"messages": json.dumps(row["messages"]), "tools": json.dumps([WEATHER])}
    assert messages_of(as_text, "") == messages
    assert tools_of(as_text, "") == tools == [{"type": "function", "function": WEATHER}]
    assert "tool_calls" in messages_of({"messages": [old]}, "")[0]


SILENT = {"role": "assistant", "content": " "}


@pytest.mark.wording
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (with_tools(), "line 3: the chat template does not write tools"),
        (with_tools(tools=None), "line 3: the chat template does not write reasoning"),
        ({"messages": [called("{}")]}, "line 3: the chat template does not write tool_calls"),
        ({"messages": [called("Bonn")]}, "arguments that are not a JSON object"),
        (with_tools(tools="weather"), "its tools are not a list of objects"),
    ],
)
def test_what_a_template_would_drop_is_refused(
    row: dict[str, Any], says: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    writer = ChatWriter(tokenizer, None, answers_only=False)  # ChatML knows nothing of these
    with pytest.raises(RecipeError, match=says):
        writer.write(messages_of(row, "line 3"), "line 3", tools_of(row, "line 3"))


def test_roles_and_parts_of_others(tokenizer: PreTrainedTokenizerBase) -> None:
    parts = [{"type": "text", "text": "2+"}, {"type": "text", "text": "2", "image_url": None}]
    row = {
        "messages": [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": parts},
            {"role": "function", "name": "add", "content": "4"},
            {"role": "assistant", "content": "4"},
        ]
    }
    writer = ChatWriter(tokenizer, None, answers_only=False)
    text = writer.write(messages_of(row, ""), "").text
    assert text.startswith("<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2+2<|im_end")
    assert "<|im_start|>tool\n4<|im_end|>" in text
    knows = CHATML + "{# developer #}"
    text = ChatWriter(tokenizer, knows, answers_only=False).write(messages_of(row, ""), "").text
    assert text.startswith("<|im_start|>developer\nBe short.")
    beside = {"system": "Be short.", "conversations": row["messages"][1:]}
    assert messages_of(beside, "")[0] == {"role": "system", "content": "Be short."}
    both = {"prompt": row["messages"][:2], "completion": row["messages"][3:]}
    assert [one["role"] for one in messages_of(both, "")] == ["developer", "user", "assistant"]
    no_tool = "{% for m in messages if m.role != 'tool' %}{{ m.content }} 4{% endfor %}"
    with pytest.raises(RecipeError, match=wording("3: .*does not write messages of role tool")):
        ChatWriter(tokenizer, no_tool, answers_only=False).write(messages_of(row, ""), "line 3")
    with pytest.raises(RecipeError, match=wording("line 3: .*does not write anything")):
        ChatWriter(tokenizer, "{{ '' }}", answers_only=False).write(messages_of(row, ""), "line 3")
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": "x.png"}]}
    with pytest.raises(RecipeError, match=wording("3: a message with a part of type image_url")):
        messages_of({"messages": [picture]}, "line 3")


def test_what_a_template_writes_by_name_is_part_of_what_is_kept(data: Path, tmp_path: Path) -> None:
    """The same files except for the name of a token: other ids, and no old ones from the cache."""
    base = untrained_tokenizer().backend_tokenizer
    base.add_special_tokens(["<a>", "<b>", *string.ascii_letters])
    corpus, found = read_corpus(section(data)), []
    for end in ("<a>", "<b>"):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, eos_token=end)
        tokenizer.save_pretrained(tmp_path / end[1])
        found.append(
            model_tokens(corpus, section(data), tmp_path / end[1], 0, cache=tmp_path / "cache")
        )
    first, second = found
    assert first.digest != second.digest
    assert not np.array_equal(first.ids, second.ids)
