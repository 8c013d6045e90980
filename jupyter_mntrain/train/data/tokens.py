"""Tokenizing: with the model's tokenizer, or with a byte-level BPE trained on the corpus."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from jupyter_mntrain.families.directories import (
    CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TOKENIZERS,
    lacking_tokenizer,
    read_object,
    tokenizer_files,
    unreadable,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.data.chat import (
    DAY,
    ChatWriter,
    read_template,
    refuse_broken,
    template_of,
)
from jupyter_mntrain.train.data.corpus import Corpus
from jupyter_mntrain.train.data.encoding import (
    ANSWERED,
    COUNTS,
    ENDS,
    IDS,
    NO_COUNTS,
    Encoder,
    ReadCounts,
    Reading,
    fitting,
)
from jupyter_mntrain.train.data.special_tokens import SpecialTokens
from jupyter_mntrain.train.model.added_tokens import add_tokens

# Own tokenizer: that of a Hugging Face directory, in the forms that transformers converts.
#
# ``tokenizer.json`` is read as it is. ``tokenizer.model`` (SentencePiece's) and
# ``vocab.json`` with ``merges.txt`` are converted into it. What is lost of these is not noticed by
# those who convert them: they would give other ids.


SENTENCEPIECE, (VOCABULARY, MERGES) = TOKENIZERS[1][0], TOKENIZERS[2]
TEMPLATE: Final = "chat_template.jinja"

_BESIDE: Final = (*(CONFIG, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json"),)
"""Other files that transformers reads."""


def read_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Read a directory's tokenizer, in any form that transformers reads, without running its code.

    Raises:
        RecipeError: it cannot be read, or needs a library to be converted.
    """
    files = tokenizer_files([one.name for one in directory.iterdir()])
    objects = [one for one in (*_BESIDE, *files) if one.endswith(".json")]
    # transformers' own words name no file
    read = {one: read_object(directory / one) for one in objects if (directory / one).is_file()}
    if (directory / TEMPLATE).is_file():
        read_template(directory / TEMPLATE)
    if files == (TOKENIZER,):
        _refuse_apart(directory / TOKENIZER, read[TOKENIZER])
    if files == (SENTENCEPIECE,):
        _check_pieces(directory / SENTENCEPIECE)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        tokenizer("a")  # a setting may be wrong that is only used now
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library's Rust is no Exception
        named = [one for one in (*files, TOKENIZER_CONFIG) if (directory / one).is_file()]
        names = " and ".join(named or ["its tokenizer"])
        fix = f"copy {names} again"
        if "auto_map" in read.get(TOKENIZER_CONFIG, {}):
            fix = f"its own code, which it needs, is not run: have transformers write {TOKENIZER}"
        raise unreadable(directory / names, error, fix=fix) from error
    _refuse_torn(directory, files, tokenizer)
    if isinstance(tokenizer.chat_template, str) and not (directory / TEMPLATE).is_file():
        refuse_broken(tokenizer.chat_template, directory / TOKENIZER_CONFIG)
    return tokenizer


def _refuse_apart(file: Path, given: Mapping[str, Any]) -> None:
    """Refuse merges without the continuation prefix, on which the library may crash."""
    model = given.get("model")
    made: dict[str, Any] = model if isinstance(model, dict) else {}
    prefix, merges = made.get("continuing_subword_prefix"), made.get("merges")
    if not (prefix and isinstance(prefix, str) and isinstance(merges, list)):
        return
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and parts and str(parts[-1]).startswith(prefix)):
            why = f"its continuing_subword_prefix is not in the merge {merge}"
            raise unreadable(file, why)


def _refuse_torn(
    directory: Path, files: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a damaged tokenizer that loads without an error but would give other ids."""
    ids = tokenizer.get_vocab()
    if len(set(ids.values())) < len(ids):
        number, _ = Counter(ids.values()).most_common(1)[0]
        alike = [repr(one) for one, its in ids.items() if its == number]
        raise unreadable(directory / files[0], f"{some_of(alike)} have the same id {number}")
    if files == TOKENIZERS[2]:
        _refuse_unmade(directory / MERGES, tokenizer)


def _refuse_unmade(file: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse merges that do not produce all tokens: the file was cut, or is another model's."""
    model: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    made = {"".join(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]}
    added = tokenizer.get_added_vocab()
    unmade = [
        one for one in model["vocab"] if len(one) > 1 and one not in made and one not in added
    ]
    if unmade:
        why = f"it does not produce {some_of(unmade)} of {VOCABULARY}"
        fix = "copy both files again, or have transformers write a tokenizer.json"
        raise unreadable(file, why, fix=fix)


def _check_pieces(file: Path) -> None:
    """Refuse a truncated SentencePiece model, which would load without an error."""
    if lacking := [one for one in ("sentencepiece", "google.protobuf") if not _is_there(one)]:
        raise RecipeError(
            f"{file.parent}: {lacking[0]}, which converts {file.name}, is not installed here",
            kind=Kind.MISSING_LIBRARY,
            fix="pip install 'jupyter-mntrain[sentencepiece]' on every node; or have transformers "
            "write a tokenizer.json elsewhere",
        )
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
    except DecodeError:
        fix = "copy the file again; or, if it is none, have transformers write a tokenizer.json"
        raise unreadable(file, "it is not a SentencePiece model", fix=fix) from None
    pieces = [one.piece for one in model.pieces]
    is_whole = model.HasField("trainer_spec") and model.HasField("normalizer_spec")
    if not (pieces and is_whole) or len(UnknownFieldSet(model)) or len({*pieces}) < len(pieces):
        raise unreadable(file, "part of it is missing")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent
        return False


END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

_FORMAT = "3"
"""Part of every cache key: raise it when the format of the files changes."""
_READING = "whole answers, special tokens as text"
"""Part of the key of tokens: change it when the same rows are read in another way."""


@dataclass(frozen=True)
class Tokens:
    """A tokenized corpus, memory-mapped.

    Args:
        ids: token ids of all documents, concatenated.
        ends: end of each document in ``ids``, exclusive.
        answers: which tokens the loss counts; ``None`` = all.
        digest: hash of tokenizer and chat template.
        tokenizer: decodes the ids.
        template: chat template that the conversations were rendered with.
        counts: of the rows it was made of.
        end_of_text: id appended to each text.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]
    answers: NDArray[np.bool_] | None
    digest: str
    tokenizer: PreTrainedTokenizerBase
    template: str | None = None
    counts: ReadCounts = NO_COUNTS
    end_of_text: int | None = None

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    def between(self, begin: int, end: int) -> Tokens:
        """Return the tokens between two places in ``ids``."""
        inside = self.ends[(self.ends > begin) & (self.ends < end)] - begin
        return replace(
            self,
            ids=self.ids[begin:end],
            ends=np.append(inside, end - begin),
            answers=None if self.answers is None else self.answers[begin:end],
        )

    def sources(self) -> list[Tokens]:
        """Return the tokens of each source."""
        if len(self.counts.documents) < 2:
            return [self]
        ends = [0, *(int(self.ends[n - 1]) if n else 0 for n in np.cumsum(self.counts.documents))]
        return [self.between(begin, end) for begin, end in pairwise(ends)]

    def begins_at(self, place: int) -> bool:
        """Whether a document begins at this place in ``ids``, or the last one ended before it."""
        found = np.searchsorted(self.ends, place)
        return not place or bool(found < len(self.ends) and self.ends[found] == place)

    @property
    def pairs(self) -> NDArray[np.int64]:
        """The number of (token, next token) pairs in each document."""
        begins = np.concatenate([[0], self.ends[:-1]])
        pairs: NDArray[np.int64] = np.maximum(self.ends - begins - 1, 0)
        return pairs


def trained_tokens(
    corpus: Corpus,
    section: DataSection,
    *,
    added: Sequence[str] = (),
    cache: Path | None = None,
    progress: ProgressWriter = unwatched,
) -> Tokens:
    """Train a tokenizer on the corpus and encode it, or read both from the cache.

    Raises:
        RecipeError: the corpus has too little text for a vocabulary of this size.
    """
    cache = _cache_directory() if cache is None else cache
    size = section.vocabulary_size
    untrained = untrained_tokenizer()
    writer = ChatWriter(
        *(untrained, template_of(section)), answers_only=False, splits_special=False, day=DAY
    )
    template = writer.dated if section.format == "chat" else ""
    key = _digest(_FORMAT, corpus.digest, _policy(section), str(size), template)
    path = cache / f"tokenizer-{key[:32]}.json"
    with _locked(path, progress):
        if not path.exists():
            reading = Reading(corpus, writer, writer.special)
            texts = (one.text for one in reading.texts(progress, "training the tokenizer"))
            _replace(path, lambda to: _train(texts, size).save(str(to)))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=END_OF_TEXT)
    if len(tokenizer) != size:
        cause = f"data.vocabulary_size = {size}: the text of {corpus.description}"
        cause = f"{cause} yields only {len(tokenizer)} tokens"
        raise RecipeError(cause, fix=f"use at most {len(tokenizer)}, or more text")
    add_tokens(tokenizer, added)
    return _encoded(corpus, section, tokenizer, END_OF_TEXT_ID, cache, progress)


def model_tokens(
    corpus: Corpus,
    section: DataSection,
    directory: Path,
    end_of_text: int | None,
    *,
    added: Sequence[str] = (),
    cache: Path | None = None,
    progress: ProgressWriter = unwatched,
) -> Tokens:
    """Encode the corpus with the tokenizer of a Hugging Face directory.

    Args:
        end_of_text: id appended to each text: the model config's ``eos_token_id``.
        added: tokens that it gets besides its own.

    Raises:
        RecipeError: the directory has no tokenizer that can be read, or a token is not new.
    """
    cache = _cache_directory() if cache is None else cache
    tokenizer = model_tokenizer(directory)
    add_tokens(tokenizer, added)
    return _encoded(corpus, section, tokenizer, end_of_text, cache, progress)


def like_tokens(
    corpus: Corpus,
    section: DataSection,
    like: Tokens,
    *,
    cache: Path | None = None,
    progress: ProgressWriter = unwatched,
) -> Tokens:
    """Encode another corpus in the same way."""
    cache = _cache_directory() if cache is None else cache
    return _encoded(corpus, section, like.tokenizer, like.end_of_text, cache, progress)


def random_tokens(
    section: DataSection, documents: int, vocabulary_size: int, tokenizer: PreTrainedTokenizerBase
) -> Tokens:
    """Make documents of random tokens, each of which fills a sequence."""
    length = section.sequence_length + 1  # the last one is only predicted
    generator = np.random.default_rng(section.seed)
    ids = generator.integers(vocabulary_size, size=documents * length, dtype=np.int32)
    ends = np.arange(1, documents + 1) * length
    return Tokens(ids, ends, None, _digest("random", str(vocabulary_size)), tokenizer)


def model_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Read the tokenizer of a Hugging Face directory for training.

    Raises:
        RecipeError: the directory has none, or one that cannot be read.
    """
    if lacking := lacking_tokenizer([one.name for one in directory.iterdir()], directory):
        raise lacking
    return read_tokenizer(directory)


def begin_of_text(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the id that a tokenizer puts before each text, as Llama's and Gemma's do."""
    plain, usual = (tokenizer("a", add_special_tokens=one)["input_ids"] for one in (False, True))
    first = tokenizer.bos_token_id
    return first if len(usual) > len(plain) and usual[0] == first else None


def text_ids(
    tokenizer: PreTrainedTokenizerBase, text: str, *, splits_special: bool = True
) -> list[int]:
    """Return the ids of a text to continue, which begins like the texts in training.

    Args:
        splits_special: read special tokens in it as text.
    """
    begin = begin_of_text(tokenizer)
    special = SpecialTokens(tokenizer, splits=splits_special)
    ids = special.ids(text, special.found_in(text))
    return ids if begin is None else [begin, *ids]


def untrained_tokenizer() -> PreTrainedTokenizerBase:
    """Make a tokenizer without a vocabulary."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token=END_OF_TEXT)


def _train(documents: Iterable[str], vocabulary_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def _encoded(
    corpus: Corpus,
    section: DataSection,
    tokenizer: PreTrainedTokenizerBase,
    end_of_text: int | None,
    cache: Path,
    progress: ProgressWriter,
) -> Tokens:
    is_chat, splits = section.format == "chat", section.split_special_tokens
    marks = is_chat and section.answers_only
    writer = ChatWriter(
        *(tokenizer, template_of(section)), answers_only=marks, splits_special=splits, day=DAY
    )
    special = writer.special if is_chat else SpecialTokens(tokenizer, splits=splits)
    template = writer.template if is_chat else None
    # The template already begins and ends a conversation.
    begin, end = (None, None) if is_chat else (begin_of_text(tokenizer), end_of_text)
    # A template writes some of these.
    named = "" if template is None else repr(sorted(tokenizer.special_tokens_map.items()))
    digest = _digest(
        *(_FORMAT, special.whole.to_str(), f"{begin} {end}"),
        *(writer.dated if is_chat else "", str(marks), str(splits), named),
    )
    read = (corpus.digest, _policy(section), _split(section), _READING)
    folder = cache / f"tokens-{_digest(*read, digest)[:32]}"
    with _locked(folder, progress):
        if not folder.exists():
            reading = Reading(corpus, writer, special, fitting(section, special))
            written = reading.texts(progress, "tokenizing the text")
            _replace(folder, lambda to: Encoder(special, begin, end, to).run(written, reading))
    if not (folder / IDS).stat().st_size:
        cause = f"data.source = {section.source}: all of its documents are empty"
        raise RecipeError(cause, fix="use another source")
    ids = np.memmap(folder / IDS, dtype=np.int32, mode="r")
    ends = np.fromfile(folder / ENDS, dtype=np.int64)
    answers = np.memmap(folder / ANSWERED, dtype=np.bool_, mode="r") if marks else None
    counts = msgspec.json.decode((folder / COUNTS).read_bytes(), type=ReadCounts)
    return Tokens(ids, ends, answers, digest, tokenizer, template, counts, end)


def _policy(section: DataSection) -> str:
    """Return the part of the cache key that decides which rows are kept."""
    return f"skip {section.bad_rows_limit}" if section.on_bad_rows == "skip" else ""


def _split(section: DataSection) -> str:
    """Return the part of the cache key that decides where conversations are split."""
    return f"split {section.sequence_length}" if section.too_long == "split" else ""


def _cache_directory() -> Path:
    return kept_folder("cache") / "data"


@contextmanager
def _locked(path: Path, progress: ProgressWriter) -> Iterator[None]:
    """Lock a cache entry, which another rank of this node may be creating."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        tally = Tally(progress, "waiting for another process to tokenize")
        lock.acquire()
        tally.end()
    try:
        yield
    finally:
        lock.release()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a temporary path, then rename: a killed rank leaves no partial cache entry."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        beside.replace(path)
    finally:
        if beside.is_dir():
            shutil.rmtree(beside)
        beside.unlink(missing_ok=True)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
