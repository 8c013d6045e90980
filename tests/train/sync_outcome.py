"""What came out of comparing replicas that sync rarely. Imports no torch."""

from __future__ import annotations

import msgspec


class SyncOutcome(msgspec.Struct):
    """The worst of all ranks.

    Args:
        loss_error: relative, worst of all steps.
        weight_error: largest difference over the largest value, at the end.
        averaged_error: likewise, of syncs after every step of plain SGD, by a learning rate of 1
            and without momentum, against the mean of the gradients.
        rounding: by what is sent, the largest error of an average over the largest value of any
            replica; infinite if replicas got different ones.
        differing: what differs after a resume between two syncs; nothing should.
    """

    loss_error: float
    weight_error: float
    averaged_error: float
    rounding: dict[str, float] = {}
    differing: tuple[str, ...] = ()
