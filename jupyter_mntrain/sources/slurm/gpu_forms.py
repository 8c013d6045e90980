"""GPU formats: how GPUs are requested from SLURM, and how it prints them. Pure.

Sites want different forms, and their plugins refuse the others: the form that a person writes
chooses the option. Measured with 22.05 and 24.11: ``--gpus-per-node`` refuses ``gpu:2``, and
``--gres`` refuses ``2``; ``--gpus`` spreads GPUs unequally over the nodes, so it is never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from jupyter_mntrain.model.errors import SpecError, shortened

GPU = "gpu"

_ASKED = re.compile(
    r"(?P<gres>gpu:)?(?:(?P<kind>[A-Za-z][A-Za-z0-9_.-]*):)?(?P<count>[1-9][0-9]{0,3})",
    re.ASCII,
)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_SAID = re.compile(
    r"(?:gres[:/])?(?:(?P<name>[A-Za-z][\w.-]*))?(?:[:/](?P<kind>[A-Za-z][\w.-]*))?"
    r"(?:(?:^|[:=])(?P<count>[0-9]+))?",
    re.ASCII,
)
_OTHERS = frozenset(
    {"mps", "shard", "nic", "bandwidth", "tmpdisk", "cpu", "mem", "node", "billing"}
)
"""Resources that are no GPUs."""


class AskedGpus(NamedTuple):
    """GPUs per node as the user requested them.

    Args:
        kind: type of the GPUs; empty = any.
        is_gres: whether the form is that of ``--gres``.
    """

    number: int
    kind: str = ""
    is_gres: bool = False

    @property
    def option(self) -> str:
        """The option for ``sbatch``."""
        kind = f"{self.kind}:" if self.kind else ""
        return (
            f"--gres=gpu:{kind}{self.number}"
            if self.is_gres
            else f"--gpus-per-node={kind}{self.number}"
        )


def asked_gpus(text: str) -> AskedGpus | None:
    """Parse ``4``, ``gpu:4``, ``gpu:TYPE:4`` or ``TYPE:4``; return ``None`` for no GPUs.

    Raises:
        SpecError: it has another form.
    """
    said = text.strip()
    if said in ("", "0"):
        return None
    match = _ASKED.fullmatch(said)
    if match is None or match["kind"] == GPU:
        raise SpecError(
            f"{shortened(text)!r} is not a number of GPUs per node",
            fix="write it as this site takes it: 4, gpu:4, TYPE:4 or gpu:TYPE:4",
        )
    return AskedGpus(int(match["count"]), match["kind"] or "", is_gres=match["gres"] is not None)


class SaidGpus(NamedTuple):
    """GPUs as SLURM printed them. ``kind`` is empty if it printed no type."""

    kind: str
    number: int


def said_gpus(text: str) -> tuple[SaidGpus, ...]:
    """Parse GPUs that SLURM printed in any of its formats; other resources are left out.

    They are: ``4``, ``a100:4``, ``gpu``, ``gpu:4``, ``gpu:a100:4(S:0-1)``, ``gpu:a100:2(IDX:0,3)``,
    ``gres:gpu:4``, ``gres/gpu:4``, ``gres/gpu:a100=4``, several of them with commas, ``(null)``,
    ``N/A`` and nothing. Where a total stands next to the types, it is the total that is told.
    """
    found = tuple(_items(text))
    totals = tuple(one for one in found if not one.kind)
    return totals or found


def count_of(text: str) -> int:
    """Return the number of GPUs that SLURM printed, in any format of :func:`said_gpus`."""
    return sum(one.number for one in said_gpus(text))


def _items(text: str) -> Iterator[SaidGpus]:
    plain = text.strip()
    if plain == "N/A":
        return
    for item in _IN_PARENTHESES.sub("", plain).split(","):
        match = _SAID.fullmatch(item.strip())
        if match is None or not item.strip():
            continue
        name, kind, count = match["name"], match["kind"], match["count"]
        if name == GPU:
            yield SaidGpus(kind or "", 1 if count is None else int(count))
        elif count is not None and kind is None and name not in _OTHERS:
            yield SaidGpus(name or "", int(count))
