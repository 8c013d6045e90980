"""Text to token ids: a byte-level BPE trained on the corpus, or the model's own tokenizer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import platformdirs
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.progress import Progress, Tally, unwatched
from jupyter_mntrain.train.corpus import Corpus

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

_FORMAT = "1"
"""Part of every cache key: raised when the files' meaning changes."""

_BATCH_DOCUMENTS = 64
"""Documents encoded at once: enough for the tokenizer's threads, little enough for memory."""


@dataclass(frozen=True)
class Tokens:
    """The whole corpus as one row of ids, read from a memory map."""

    ids: NDArray[np.int32]
    tokenizer_digest: str
    vocabulary_size: int


def trained_tokens(
    corpus: Corpus,
    vocabulary_size: int,
    *,
    cache: Path | None = None,
    progress: Progress = unwatched,
) -> Tokens:
    """Train a tokenizer on the corpus and encode it, or take both from the cache.

    Raises:
        RecipeError: the corpus has too little text for a vocabulary of this size.
    """
    cache = _cache_directory() if cache is None else cache
    key = _digest(_FORMAT, corpus.digest, str(vocabulary_size))
    path = cache / f"tokenizer-{key[:32]}.json"
    with _locked(path, progress):
        if not path.exists():
            texts = corpus.documents(progress=progress, what="training the tokenizer")
            _replace(path, lambda to: _train(texts, vocabulary_size).save(str(to)))
    tokenizer = Tokenizer.from_file(str(path))
    if tokenizer.get_vocab_size() != vocabulary_size:
        cause = f"data.vocabulary_size = {vocabulary_size}: the text of {corpus.description}"
        cause = f"{cause} yields only {tokenizer.get_vocab_size()} tokens"
        raise RecipeError(cause, fix=f"use at most {tokenizer.get_vocab_size()} or more text")
    return _encoded(corpus, tokenizer, END_OF_TEXT_ID, cache, progress)


def model_tokens(
    corpus: Corpus,
    directory: Path,
    end_of_text: int | None,
    *,
    cache: Path | None = None,
    progress: Progress = unwatched,
) -> Tokens:
    """Encode the corpus with the tokenizer of a Hugging Face directory.

    Args:
        end_of_text: id put after each document, as the model's config names it.

    Raises:
        RecipeError: the directory has no tokenizer.json.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        cause = f"model.path = {directory}: no tokenizer.json in it"
        raise RecipeError(cause, fix='copy it there, or set data.tokenizer = "train"')
    return _encoded(
        corpus,
        Tokenizer.from_file(str(path)),
        end_of_text,
        _cache_directory() if cache is None else cache,
        progress,
    )


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
    tokenizer: Tokenizer,
    end_of_text: int | None,
    cache: Path,
    progress: Progress,
) -> Tokens:
    # Padding or truncation kept in a tokenizer.json would silently change the text.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    digest = _digest(_FORMAT, tokenizer.to_str(), str(end_of_text))
    path = cache / f"tokens-{_digest(corpus.digest, digest)[:32]}.npy"
    with _locked(path, progress):
        if not path.exists():
            texts = corpus.documents(progress=progress, what="tokenising the text")
            ids = np.concatenate(list(_ids(texts, tokenizer, end_of_text)))
            _replace(path, lambda to: _save(to, ids))
    return Tokens(np.load(path, mmap_mode="r"), digest, tokenizer.get_vocab_size())


def _ids(
    documents: Iterable[str], tokenizer: Tokenizer, end_of_text: int | None
) -> Iterator[NDArray[np.int32]]:
    tail = [] if end_of_text is None else [end_of_text]
    stream = iter(documents)
    while batch := list(islice(stream, _BATCH_DOCUMENTS)):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            yield np.array(encoding.ids + tail, dtype=np.int32)


def _save(path: Path, ids: NDArray[np.int32]) -> None:
    with path.open("wb") as file:
        np.save(file, ids)


def _cache_directory() -> Path:
    return platformdirs.user_cache_path("mntrain") / "data"


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Alone with a file of the cache; another rank of this node may be making it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        tally = Tally(progress, "waiting for another process that tokenises")
        lock.acquire()
        tally.end()
    try:
        yield
    finally:
        lock.release()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside and rename: a rank that is killed leaves no half file under the real name."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
