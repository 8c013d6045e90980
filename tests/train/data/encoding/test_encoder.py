"""Encoder: the files do not depend on how texts are batched; a full disk is named."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data import encoding
from jupyter_mntrain.train.data.chat import ChatWriter, RenderedChat
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.encoding import (
    ANSWERED,
    ENDS,
    IDS,
    Encoder,
    Reading,
    refusing_full_disk,
)
from jupyter_mntrain.train.data.special_tokens import SpecialTokens
from jupyter_mntrain.train.data.tokens import untrained_tokenizer
from tests.train.data.encoding.test_pieces import BYTES, TEXT
from tests.wording import wording

SPECIAL = SpecialTokens(PreTrainedTokenizerFast(tokenizer_object=BYTES), splits=True)
TEXTS = [TEXT, "", "short\n", TEXT[:777], *(f"{n} words" for n in range(50))]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    (tmp_path / "x.txt").write_text("x")
    section = DataSection(source=str(tmp_path / "x.txt"))
    writer = ChatWriter(untrained_tokenizer(), None, answers_only=False)
    return Reading(read_corpus(section), writer, writer.special)


@pytest.mark.parametrize("most", [200, 1000, 1 << 20])
def test_files_are_those_of_each_text_by_itself(
    most: int, tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_BATCH_CHARACTERS", most)
    whole = encoding.pieces_of
    monkeypatch.setattr(encoding, "pieces_of", lambda text, tokenizer: whole(text, tokenizer, most))
    answers = [((3, 9), (len(text) // 2, len(text))) for text in TEXTS]
    documents = map(RenderedChat, TEXTS, answers)
    Encoder(SPECIAL, None, 7, tmp_path / "cache").run(documents, reading)
    ids: list[int] = []
    ends: list[int] = []
    inside: list[bool] = []
    for text, spans in zip(TEXTS, answers, strict=True):
        encoded = BYTES.encode(text, add_special_tokens=False)
        ids += [*encoded.ids, 7]
        ends.append(len(ids))
        inside += [any(a < end and begin < b for a, b in spans) for begin, end in encoded.offsets]
    folder = tmp_path / "cache"
    assert np.fromfile(folder / IDS, np.int32).tolist() == ids
    assert np.fromfile(folder / ENDS, np.int64).tolist() == ends
    assert np.fromfile(folder / ANSWERED, np.bool_).tolist() == inside


def test_a_token_that_holds_a_letter_of_an_answer_is_of_it() -> None:
    # A space before the answer in one token with its first word; an empty token within it.
    offsets = [(0, 9), (9, 15), (15, 15), (15, 17), (17, 19)]
    assert encoding._inside(offsets, [(10, 16)], 0).tolist() == [False, True, True, True, False]
    assert encoding._inside([], [(10, 16)], 0).tolist() == []


def test_what_ends_the_reading_ends_the_encoding(tmp_path: Path, reading: Reading) -> None:
    def documents() -> object:
        yield RenderedChat(TEXT)
        raise RecipeError("bad rows", fix="repair them")

    with pytest.raises(RecipeError, match=wording("bad rows")):
        Encoder(SPECIAL, None, 7, tmp_path / "cache").run(documents(), reading)  # type: ignore[arg-type]


def test_a_full_disk_is_named_with_the_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(RecipeError, match=wording("no room for the tokens.*XDG_CACHE_HOME")),
        refusing_full_disk(tmp_path),
        Path("/dev/full").open("wb") as file,
    ):
        file.write(b"tokens")
    with pytest.raises(OSError, match="other"), refusing_full_disk(tmp_path):
        raise OSError(errno.EIO, "other")
