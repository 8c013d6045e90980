"""Viewing: the gate that all answers to read-only drivers pass, which keeps secrets back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from jupyter_mntrain.model.api import TrustNews
from jupyter_mntrain.model.records.hidden import cleaned, shown_spec
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.metrics import encoder, read_journal_line
from jupyter_mntrain.model.text.secrets import HIDDEN, masked

T = TypeVar("T")

LONGEST_SECRET_BYTES = 8192
"""A private key of 4096 bits has 3,300."""


def for_viewer(content: T, values: Iterable[str] = ()) -> T:
    """An answer without secrets: those given, those of the jobs in it, and those of known forms.
    A job's spec comes without the values of its variables, and without its files.
    """
    if isinstance(content, TrustNews):
        return content  # certificates, signed so that anybody may pass them on
    return cleaned(content, values, show=_spec_for_viewer)


def lines_for_viewer(block: bytes, values: Iterable[str]) -> bytes:
    """Whole lines of a journal, without secrets."""
    values = tuple(values)
    return b"".join(_line_for_viewer(line, values) for line in block.splitlines(keepends=True))


def _line_for_viewer(line: bytes, values: tuple[str, ...]) -> bytes:
    try:
        read = read_journal_line(line)
    except msgspec.MsgspecError:
        return b""
    if read is None:
        return b""  # a newer agent's: nobody here knows where it may hold a secret
    seen = cleaned(read, values)
    return line if seen is read else encoder.encode(seen) + b"\n"


def _spec_for_viewer(spec: JobSpec) -> JobSpec:
    hidden = dict.fromkeys(spec.environment, HIDDEN)
    return msgspec.structs.replace(shown_spec(spec), environment=hidden, files={})


def around(offset: int, limit: int) -> tuple[int, int]:
    """Offset and length of what must be read to mask a part of a log: a secret may begin before
    it, and who asks for single bytes must not learn more.
    """
    begin = max(0, offset - LONGEST_SECRET_BYTES)
    return begin, offset - begin + limit + LONGEST_SECRET_BYTES


def masked_log(content: bytes, values: Iterable[str]) -> bytes:
    """A part of a log, of the same length, without these secrets and those of known forms."""
    spelled = [value.encode().decode("latin-1") for value in values]
    return masked(content.decode("latin-1"), spelled).encode("latin-1")
