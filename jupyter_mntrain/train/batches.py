"""Which tokens each step sees: a pure function of seed and step, so that any rank can know it."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from jupyter_mntrain.model.errors import RecipeError


class Batches:
    """Sequences of ``sequence_length + 1`` neighbouring tokens, shuffled anew in each epoch.

    The extra token is the last label. First and last stage read the batch each for itself, so
    nothing but activations crosses the network.

    Args:
        ids: the corpus, one-dimensional.
        batch_size: sequences per optimiser step.
    """

    def __init__(
        self, ids: NDArray[np.int32], *, batch_size: int, sequence_length: int, seed: int
    ) -> None:
        self._ids = ids
        self._batch_size = batch_size
        self._length = sequence_length
        self._seed = seed
        self._sequences = max(0, (len(ids) - 1) // sequence_length)
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        if self._sequences == 0:
            cause = f"data.sequence_length = {sequence_length}: the text has {len(ids)} tokens"
            raise RecipeError(cause, fix=f"use at most {max(1, len(ids) - 1)} or more text")

    def batch(self, step: int) -> torch.Tensor:
        """Ids of one optimiser step, counted from 0: int64, (batch_size, sequence_length + 1)."""
        first = step * self._batch_size
        rows = [self._row(first + offset) for offset in range(self._batch_size)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def fingerprint(self) -> str:
        """Hash of the first batch: differs if two ranks would shuffle differently."""
        return hashlib.sha256(self.batch(0).numpy().tobytes()).hexdigest()

    def _row(self, position: int) -> NDArray[np.int32]:
        epoch, place = divmod(position, self._sequences)
        if epoch != self._epoch:
            generator = np.random.default_rng([self._seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(self._sequences)
        start = int(self._order[place]) * self._length
        return self._ids[start : start + self._length + 1]
