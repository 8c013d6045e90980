"""Link rates: parses bit rates such as ``1gbit``."""

from __future__ import annotations

import re

from jupyter_mntrain.model.errors import SpecError

_RATE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmg]?)(bit|bps)(/s)?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def parse_bit_rate(text: str) -> float:
    """Convert ``1gbit`` or ``940mbit`` to bytes per second.

    Raises:
        SpecError: it is not a rate, or zero.
    """
    match = _RATE.fullmatch(text.strip())
    bits = float(match["number"]) * _UNITS[match["unit"].lower()] if match else 0.0
    if bits <= 0:
        raise SpecError(f"{text!r} is not a link rate", fix="write it like 1gbit or 940mbit")
    return bits / 8
