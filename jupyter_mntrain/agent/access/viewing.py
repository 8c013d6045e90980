"""Viewing: what a read-only driver sees of a job, which is everything but its secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import Evidence
from jupyter_mntrain.model.records.job import JobRecord, JobSpec
from jupyter_mntrain.model.records.pressure import Slowdown
from jupyter_mntrain.model.text.secrets import HIDDEN, is_secret, masked, shown_words

Found = TypeVar("Found", Problem, Evidence, Slowdown)

LONGEST_SECRET_BYTES = 8192
"""A private key of 4096 bits has 3,300."""


def for_viewer(record: JobRecord) -> JobRecord:
    """A record without values of variables, files and secret arguments."""
    spec = record.spec
    hidden = msgspec.structs.replace(
        spec,
        entry=shown_words(spec.entry),
        torchrun_arguments=shown_words(spec.torchrun_arguments),
        environment=dict.fromkeys(spec.environment, HIDDEN),
        files={},
    )
    part, values = record.part, secret_values(spec)
    warnings = (_clean(warning, values) for warning in part.warnings)
    slowdowns = (_clean(slowdown, values) for slowdown in part.slowdowns)
    part = msgspec.structs.replace(
        part,
        problem=_clean(part.problem, values),
        evidence=_clean(part.evidence, values),
        warnings=tuple(warning for warning in warnings if warning is not None),
        slowdowns=tuple(slowdown for slowdown in slowdowns if slowdown is not None),
        ranks=tuple(
            msgspec.structs.replace(rank, problem=_clean(rank.problem, values))
            for rank in part.ranks
        ),
    )
    return msgspec.structs.replace(record, spec=hidden, part=part, pressure=None)


def secret_values(spec: JobSpec) -> list[str]:
    return [
        value
        for name, value in spec.environment.items()
        if name in spec.from_environment or is_secret(name, value)
    ]


def _clean(found: Found | None, values: Sequence[str]) -> Found | None:
    """What was found, without secrets: it may quote what a script printed. If it cannot be read
    without them, since a secret is one of its own words, it is left out.
    """
    if found is None:
        return None
    try:
        return msgspec.convert(_masked_in(msgspec.to_builtins(found), values), type(found))
    except msgspec.ValidationError:
        return None


def _masked_in(content: Any, values: Sequence[str]) -> Any:
    match content:
        case str():
            return masked(content, values)
        case dict():
            return {key: _masked_in(one, values) for key, one in content.items()}
        case list() | tuple():
            return [_masked_in(one, values) for one in content]
        case _:
            return content


def around(offset: int, limit: int) -> tuple[int, int]:
    """Offset and length of what must be read to mask a part of a log: a secret may begin before
    it, and who asks for single bytes must not learn more.
    """
    begin = max(0, offset - LONGEST_SECRET_BYTES)
    return begin, offset - begin + limit + LONGEST_SECRET_BYTES


def masked_log(content: bytes, spec: JobSpec) -> bytes:
    """A part of a log, of the same length, without the secrets of the job and of known forms."""
    values = [value.encode().decode("latin-1") for value in secret_values(spec)]
    return masked(content.decode("latin-1"), values).encode("latin-1")
