"""The data section of a recipe, and what files hold data."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord

PYTHON_LIBRARY = "python-library"
TEXT_FILES = frozenset({".txt", ".md", ".rst", ".py"})
COMPRESSIBLE_FILES = TEXT_FILES | {".jsonl", ".ndjson", ".json", ".csv", ".tsv"}
COMPRESSIONS = frozenset({".gz", ".zst"})
DATA_FILES = COMPRESSIBLE_FILES | {".parquet", ".arrow"}
"""Suffixes of what is read from a folder of data."""

ANSWERS: Final = "assistant"
Role = Literal["system", "user", "assistant", "tool"]
"""Who speaks, as chat templates take it."""

TooLong = Literal["cut", "truncate", "drop", "split"]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def data_suffix(name: str) -> str:
    """The suffix that tells a data file's format, in lower case: ``.jsonl`` of ``A.JSONL.gz``.

    Empty if it has none that is known.
    """
    path = PurePath(name.lower())
    if path.suffix in COMPRESSIONS:
        inner = PurePath(path.stem).suffix
        return inner if inner in COMPRESSIBLE_FILES else ""
    return path.suffix if path.suffix in DATA_FILES else ""


class DataSource(UserRecord, frozen=True):
    """One of several sources of data.

    Args:
        weight: its share of the sequences that are trained on, beside the weights of the others.
    """

    path: Annotated[str, Meta(min_length=1)]
    weight: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0


_Names = tuple[Annotated[str, Meta(min_length=1)], ...]


class RoleNames(UserRecord, frozen=True):
    """Names that rows have for who speaks, in addition to the usual ones and before them."""

    system: _Names = ()
    user: _Names = ()
    assistant: _Names = ()
    tool: _Names = ()

    def by_name(self) -> dict[str, Role]:
        roles: tuple[Role, ...] = ("system", "user", "assistant", "tool")
        return {name: role for role in roles for name in getattr(self, role)}


class DataSection(UserRecord, frozen=True):
    """The training data. Every node reads its own copy; the trainer compares them.

    ``source`` is ``python-library`` or a path: a text, .jsonl, .json, .csv or .parquet file, a
    folder of them, or a dataset saved by Hugging Face datasets, of which ``split`` is used. All but
    .parquet may be compressed as .gz or .zst.

    ``sources`` are several in its place, each with a ``path`` and a ``weight``: what share of the
    sequences is from each is its weight divided by the sum of all. ``evaluation_path`` is text to
    evaluate on in place of a held-out share.

    ``format`` ``chat`` reads conversations (``messages``, ``conversations``, or ``prompt`` and
    ``completion``) and renders them with ``chat_template`` (a .jinja file), the model's own chat
    template, or ChatML. With ``answers_only``, the loss counts only the assistant's turns.
    ``roles`` says who speaks in turns of other names than the usual ones.

    ``packing`` ``wrapped`` cuts one long text into sequences; ``best-fit`` fills each sequence with
    whole documents that do not attend to each other; ``none`` gives each document its own sequence.
    ``auto`` is ``wrapped`` for text, ``best-fit`` for chat. Whole documents longer than a sequence
    become several, with ``too_long`` ``cut``; ``truncate`` keeps their first tokens, ``drop`` none,
    and ``split`` makes several conversations, between turns.

    With ``split_special_tokens``, special tokens such as ``</s>`` are text where people wrote them,
    in documents and messages; else they are the control tokens that only templates and the trainer
    should write.

    ``on_bad_rows`` ``refuse`` names all rows that cannot be trained on; ``skip`` leaves them out,
    and refuses if they are more than the share ``bad_rows_limit`` of all rows.

    ``tokenizer`` ``auto`` uses the model directory's, or trains one of ``vocabulary_size`` on the
    source.
    """

    source: Annotated[str, Meta(min_length=1)] = PYTHON_LIBRARY
    sources: tuple[DataSource, ...] = ()
    evaluation_path: Annotated[str, Meta(min_length=1)] | None = None
    format: Literal["text", "chat"] = "text"
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    split: Annotated[str, Meta(min_length=1)] = "train"
    roles: RoleNames = RoleNames()
    chat_template: Annotated[str, Meta(min_length=1)] | None = None
    answers_only: bool = False
    split_special_tokens: bool = True
    on_bad_rows: Literal["refuse", "skip"] = "refuse"
    bad_rows_limit: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.05
    packing: Literal["auto", "wrapped", "best-fit", "none"] = "auto"
    too_long: TooLong = "cut"
    sequence_length: Annotated[int, Meta(ge=8, le=131072)] = 256
    tokenizer: Literal["auto", "train"] = "auto"
    vocabulary_size: Annotated[int, Meta(ge=257, le=262144)] = 2048
    seed: Seed = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """All that is read, to train and to evaluate on."""
        trained = tuple(one.path for one in self.sources) or (self.source,)
        return trained if self.evaluation_path is None else (*trained, self.evaluation_path)

    def of_path(self, path: str) -> DataSection:
        """The same for one other source."""
        return msgspec.structs.replace(self, source=path, sources=())

    @property
    def is_wrapped(self) -> bool:
        """Whether sequences are cut from one long text, across documents."""
        return self.packing == "wrapped" or (self.packing == "auto" and self.format == "text")

    @property
    def is_packed(self) -> bool:
        """Whether a sequence has several documents that must not attend to each other."""
        return not self.is_wrapped and self.packing != "none"
