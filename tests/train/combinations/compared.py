"""Both sides held against each other: token by token, and step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.train.combinations.cases import SEEN_STEPS, STEPS, Combination
from tests.train.combinations.reference import Document, Reference
from tests.train.combinations.trained import Batch, Told

LIMIT = 1e-6
"""Of a loss's difference, in parts of the loss: near 7, a float32 has steps of 5e-7."""

NOT_LEARNED = -100


class Compared(NamedTuple):
    """How equal a combination is.

    Attributes:
        sequences: of all steps.
        learned: share of their tokens.
        loss: of the first step, by transformers.
        loss_errors: the worst of all steps, in parts of the loss, by the number of ranks.
        differences: in words; none if all is equal.
    """

    sequences: int
    learned: float
    loss: float
    loss_errors: tuple[float, ...]
    differences: tuple[str, ...]


def compare(one: Combination, folder: Path, told: Mapping[int, Sequence[Told]]) -> Compared:
    """Compare what each rank of each number of them has told with transformers alone."""
    everyone = [
        (f"rank {rank} of {count}", tell) for count in told for rank, tell in enumerate(told[count])
    ]
    if refused := next((f"{who}: {tell.refused}" for who, tell in everyone if tell.refused), ""):
        return Compared(0, 0.0, float("nan"), (), (refused,))
    first = everyone[0][1]
    for who, tell in everyone:
        if len(tell.losses) not in {0, STEPS}:
            return _unequal(f"{who} has logged {len(tell.losses)} of {STEPS} steps")
        for step, (some, others) in enumerate(zip(first.batches, tell.batches, strict=True)):
            if not all(map(np.array_equal, some, others)):
                return _unequal(f"{who} reads another batch in step {step + 1} than one rank alone")
    reference = one.reference(folder)
    try:
        steps = _documents(one, reference, folder, first.batches)
    except UnequalError as error:
        return _unequal(str(error))
    predicted = [is_learned for step in steps for piece in step for is_learned in piece.learned[1:]]
    sequences, learned = sum(len(inputs) for inputs, *_ in first.batches), np.mean(predicted)
    if not first.losses:
        return Compared(sequences, float(learned), float("nan"), (), ())
    losses = np.array(reference.losses(steps[:STEPS]))
    errors = {
        count: float(np.max(np.abs(np.array([one.losses for one in told[count]]) / losses - 1)))
        for count in told
    }
    worse = tuple(
        f"losses on {count} ranks differ by {error:.1e}"
        for count, error in errors.items()
        if not error <= LIMIT
    )
    return Compared(sequences, float(learned), losses[0], tuple(errors.values()), worse)


class UnequalError(Exception):
    """What is trained on differs from the docs; its text says where."""


def _documents(
    one: Combination, reference: Reference, folder: Path, batches: Sequence[Batch]
) -> list[list[Document]]:
    """What transformers makes of each step's data, once the batches have turned out to be the same.

    Raises:
        UnequalError: they are not.
    """
    expected = one.expected(reference, folder)
    steps = [
        [piece for row in zip(*batch, strict=True) for piece in _pieces(*row)] for batch in batches
    ]
    known = {_pair(document): document for document in expected}
    seen = Counter(piece for step in steps for piece in step)
    for place, piece in enumerate(seen):
        if piece not in known:
            raise UnequalError(f"document {place}: {_difference(piece, expected, reference)}")
    for pair, document in known.items():
        if not seen[pair]:
            text = reference.tokenizer.decode(document.ids)
            raise UnequalError(f"never trained on: {text[:200]!r}")
    rounds = {seen[pair] / count for pair, count in Counter(map(_pair, expected)).items()}
    if max(rounds) - min(rounds) > 1:
        often = f"{min(rounds):g} to {max(rounds):g} times"
        raise UnequalError(f"in {SEEN_STEPS} steps, documents are trained on {often}")
    return [[known[piece] for piece in step] for step in steps]


class Piece(NamedTuple):
    """A document, as a sequence holds it."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]


def _pair(document: Document) -> Piece:
    labels = (
        one if is_learned else NOT_LEARNED
        for one, is_learned in zip(document.ids[1:], document.learned[1:], strict=True)
    )
    return Piece(document.ids[:-1], tuple(labels))


def _pieces(inputs: Any, labels: Any, positions: Any) -> list[Piece]:
    """The documents of a sequence, without the padding after them."""
    begins = [*np.flatnonzero(positions == 0).tolist(), len(inputs)]
    pieces = [
        Piece(tuple(inputs[a:b].tolist()), tuple(labels[a:b].tolist())) for a, b in pairwise(begins)
    ]
    if len(pieces) > 1 and not any(pieces[-1].ids) and set(pieces[-1].labels) == {NOT_LEARNED}:
        pieces.pop()
    return pieces


def _difference(piece: Piece, expected: Sequence[Document], reference: Reference) -> str:
    """The first token of a piece that is another than in the document that is most like it."""

    def same(document: Document) -> tuple[int, int]:
        pair = _pair(document)
        return _common(piece.ids, pair.ids), _common(piece.labels, pair.labels)

    document = max(expected, key=same)
    nearest = _pair(document)
    ids, labels = _common(piece.ids, nearest.ids), _common(piece.labels, nearest.labels)
    place = min(ids, labels + 1)
    shown = reference.tokenizer.convert_ids_to_tokens
    after = f"after {reference.tokenizer.decode(document.ids[max(0, place - 12) : place])!r}"
    if ids < max(len(piece.ids), len(nearest.ids)):
        ours, theirs = (
            shown(one[ids]) if ids < len(one) else "its end" for one in (piece.ids, nearest.ids)
        )
        return f"token {ids} is {ours!r}, and {theirs!r} by transformers, {after}"
    is_learned = "is learned" if piece.labels[labels] != NOT_LEARNED else "is not learned"
    token = shown(document.ids[place])
    return f"token {place}, {token!r}, {is_learned}, unlike by the docs, {after}"


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    """How many are the same at the beginning."""
    both = enumerate(zip(some, others, strict=False))
    return next((place for place, (a, b) in both if a != b), min(len(some), len(others)))


def _unequal(why: str) -> Compared:
    return Compared(0, 0.0, float("nan"), (), (why,))
