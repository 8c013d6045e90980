"""Peak table: dense FLOPs per second of known GPUs; unknown GPUs have none.

``peaks.toml`` next to this file has the cards and the sources of their numbers. 16 bit is bfloat16
and float16 on tensor cores with float32 accumulation, *dense*; float32 is without TF32, as torch
computes by default. With it, the peak is half of that of 16 bit on every GPU that has TF32:
NVIDIA's with bfloat16, since Ampere (its white papers).

Data sheets as collected in torchtitan ``tools/utils.py`` and in stas00/ml-engineering
``compute/accelerator/README.md``; clocks and multiprocessors from NVIDIA's white papers and product
pages.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.environment import PEAK_VARIABLE
from jupyter_mntrain.model.errors import SpecError

SIXTEEN_BIT = frozenset({"bfloat16", "float16"})


class Peak(Record, frozen=True):
    """Peak FLOPs per second of a device, and the source of that number."""

    flops_per_s: float
    source: str


class Card(UserRecord, frozen=True):
    """The known data of a card: TFLOP/s, or multiprocessors and their clock in MHz."""

    sixteen_bit: float | None = None
    float32: float | None = None
    sms: int | None = None
    mhz: float | None = None


class Architecture(UserRecord, frozen=True):
    """Cards whose multiprocessors compute at the same rates per clock; see ``peaks.toml``.

    Args:
        cards: by a pattern that matches the *whole* name: Laptop, Ti, SUPER and MIG variants are
            different devices.
    """

    source: str
    cards: dict[str, Card]
    fma_sixteen_bit: int | None = None
    fma_float32: int | None = None
    bfloat16: bool = True
    tf32: bool = True

    def sixteen_bit(self, card: Card) -> float | None:
        """Return the TFLOP/s of 16-bit matrix products; ``None`` without tensor cores."""
        if card.sixteen_bit is not None or self.fma_sixteen_bit is None:
            return card.sixteen_bit
        if card.float32 is not None and self.fma_float32 is not None:
            return card.float32 * self.fma_sixteen_bit / self.fma_float32
        return _tera(self.fma_sixteen_bit, card)

    def float32(self, card: Card) -> float | None:
        """Return the TFLOP/s in float32; ``None`` if unknown."""
        if card.float32 is not None or self.fma_float32 is None:
            return card.float32
        return _tera(self.fma_float32, card)


def _tera(fma: int, card: Card) -> float | None:
    return None if card.sms is None or card.mhz is None else 2 * fma * card.sms * card.mhz / 1e6


@functools.cache
def architectures() -> dict[str, Architecture]:
    """Return the table, which is read on first use."""
    text = Path(__file__).with_suffix(".toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Architecture])


TF32_SHARE = 0.5
_TERA = 1e12
_BRAND = re.compile(r"^(NVIDIA |GeForce |Tesla )*", re.IGNORECASE)


def given_peak(environment: Mapping[str, str] = os.environ) -> Peak | None:
    """Return the peak that the user gives for this node's devices; ``None`` if there is none.

    Raises:
        SpecError: it is not a number above 0.
    """
    text = environment.get(PEAK_VARIABLE)
    if text is None:
        return None
    try:
        tera = float(text)
    except ValueError:
        tera = math.nan
    if not 0 < tera < math.inf:
        cause = f"{PEAK_VARIABLE}={text} is not a number of TFLOP/s"
        raise SpecError(cause, fix="write it like 71.2, or leave it out")
    return Peak(flops_per_s=tera * _TERA, source=f"given by {PEAK_VARIABLE}")


def known_peak(device_name: str, dtype: str, *, tf32: bool = False) -> Peak | None:
    """Look up a GPU by its driver's name for it, e.g. ``NVIDIA GeForce RTX 3090``.

    Args:
        device_name: as ``torch.cuda.get_device_name`` and NVML spell it.
        dtype: of the matrices: ``bfloat16``, ``float16`` or ``float32``.
        tf32: whether float32 matrices are multiplied as TF32, where the GPU can.
    """
    name = _BRAND.sub("", device_name.strip())
    for architecture in architectures().values():
        for pattern, card in architecture.cards.items():
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return _peak(architecture, card, dtype, tf32=tf32)
    return None


def _peak(architecture: Architecture, card: Card, dtype: str, *, tf32: bool) -> Peak | None:
    said = f"{architecture.source}, {dtype}"
    if dtype == "float32":
        tera = architecture.float32(card)
        if tf32 and architecture.tf32:
            sixteen = architecture.sixteen_bit(card)
            tera, said = sixteen and sixteen * TF32_SHARE, f"{architecture.source}, TF32"
    elif dtype in SIXTEEN_BIT and (architecture.bfloat16 or dtype != "bfloat16"):
        tera = architecture.sixteen_bit(card)
    else:
        return None
    return None if tera is None else Peak(flops_per_s=tera * _TERA, source=said)
