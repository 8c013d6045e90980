"""Talking: a job that answers ends with its driver, whether that says so or not."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import msgspec
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.conversation import ChatAnswer, ChatMessage, ChatRequest, Sampling
from jupyter_mntrain.recipe.parse import preset_config
from jupyter_mntrain.recipe.sections import DataSection, ModelSection
from jupyter_mntrain.telemetry.chat_files import (
    QUESTION_FILE,
    is_news,
    note_driver,
    put_question,
    read_answer,
)
from jupyter_mntrain.train.answering.loaded import Answering, load_source, model_in
from jupyter_mntrain.train.answering.talking import SILENT_S, Chatter
from jupyter_mntrain.train.data.chat import CHATML
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.tokens import trained_tokens
from tests.wording import says, wording

FIRST = ChatRequest(attempt=1)


class Tokenizer:
    """All that is asked of one while nobody asks the model."""

    chat_template = None


class Times:
    """A clock that passes by sleeping; the driver speaks at some of its seconds."""

    def __init__(self, directory: Path, speaks: dict[int, ChatRequest]) -> None:
        self.directory, self.speaks = directory, speaks
        self.now_s, self.said = 0.0, 0

    def time(self) -> float:
        return self.now_s

    def sleep(self, _: float) -> None:
        self.now_s += 1
        if (request := self.speaks.get(int(self.now_s))) is not None:
            self.said += 1
            if is_news(self.directory, request):
                put_question(self.directory, request)
            note_driver(self.directory)
            os.utime(self.directory / QUESTION_FILE, ns=(self.said, self.said))


@pytest.mark.parametrize(
    ("speaks", "ends_s"),
    [
        ({}, SILENT_S),
        ({20: FIRST, 45: FIRST}, 45 + SILENT_S),
        ({20: FIRST, 25: msgspec.structs.replace(FIRST, is_last=True)}, 25),
    ],
)
def test_it_ends_when_its_driver_has_left(
    tmp_path: Path, speaks: dict[int, ChatRequest], ends_s: float
) -> None:
    times, told = Times(tmp_path, speaks), []
    loaded = Answering(model=None, tokenizer=Tokenizer(), step=60, ends=[0])

    def progress(what: str, *_: object) -> None:
        told.append(what)
        answer = read_answer(tmp_path)
        assert answer is not None
        assert (answer.step, answer.has_template, answer.turn) == (60, False, 0)

    Chatter(loaded, tmp_path, progress, stopwatch=times.time, sleep=times.sleep).run()
    assert times.now_s == pytest.approx(ends_s, abs=2)
    assert told, "it says that it waits"
    assert read_answer(tmp_path) is None
    late = ChatRequest(attempt=1, turn=9)
    assert not is_news(tmp_path, late), "what comes late is not kept"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of random weights, which takes 64 tokens and has a chat template."""
    directory = tmp_path_factory.mktemp("model")
    fields = preset_config(ModelSection(preset="llama-tiny"))
    config = AutoConfig.for_model(**fields, vocab_size=300, eos_token_id=0)
    config.max_position_embeddings = 64
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    text = directory / "a.txt"
    text.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(99)))
    section = DataSection(source=str(text), vocabulary_size=300)
    tokenizer = trained_tokens(read_corpus(section), section).tokenizer
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(directory)
    return directory


def test_it_answers_from_a_directory_as_the_model_does(directory: Path, tmp_path: Path) -> None:
    arguments = argparse.Namespace(directory=str(directory))
    loaded = load_source(arguments, lambda *_: None)
    assert loaded is not None
    greedy = Sampling(tokens=5, temperature=0.0)
    hello = (ChatMessage(role="user", content="bubble 7"),)
    asked = [
        ChatRequest(attempt=1, turn=1, messages=hello, sampling=greedy, is_completion=True),
        ChatRequest(attempt=1, turn=2, messages=hello, sampling=Sampling(tokens=900)),
        ChatRequest(attempt=1, turn=3, messages=hello * 20),
    ]
    answers: list[ChatAnswer] = []

    def sleep(_: float) -> None:
        answer = read_answer(tmp_path)
        assert answer is not None
        answers.append(answer)
        is_last = len(answers) > len(asked)
        request = ChatRequest(attempt=1, is_last=True) if is_last else asked[len(answers) - 1]
        put_question(tmp_path, request)

    Chatter(loaded, tmp_path, lambda *_: None, sleep=sleep).run()
    ready, first, second, third = answers
    assert (ready.turn, ready.has_template, ready.step) == (0, True, None)
    ids = loaded.tokenizer("bubble 7", return_tensors="pt").input_ids
    wanted = loaded.model.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :]
    assert first.text == loaded.tokenizer.decode(wanted, skip_special_tokens=True)
    assert (first.turn, first.tokens, first.is_over, first.problem) == (1, len(wanted), True, None)
    assert second.problem is None
    assert 0 < second.tokens < 64, "what there is room for"
    assert third.problem is not None
    assert says("the model takes 64", third.problem.cause)


def test_a_model_that_is_not_there_or_too_large_is_one_line(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError, match=wording("no such directory on this node")):
        load_source(argparse.Namespace(directory=str(tmp_path / "x")), lambda *_: None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match=wording("has no tokenizer")):
        load_source(argparse.Namespace(directory=str(tmp_path)), lambda *_: None)
    (tmp_path / "vocab.txt").write_text("a\n")
    assert model_in(str(tmp_path)) == tmp_path, "a form that transformers reads"
    monkeypatch.setattr("jupyter_mntrain.train.model.held_memory._available_bytes", lambda: 9)
    with pytest.raises(RecipeError, match=wording("of memory are free")):
        load_source(argparse.Namespace(directory=str(directory)), lambda *_: None)
