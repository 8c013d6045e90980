"""A job as a file (TOML): versioned, for people to read, and to be launched again anywhere."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec
import tomli_w

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.job import SPEC_VERSION, JobSpec

KEY = "mntrain_job"
"""What tells a job file from a recipe; its value is the version."""

EXPORT = "export one: mntrain export JOB"


SECRET = re.compile("token|key|password|passwd|secret|credential", re.IGNORECASE)
"""In the name of a variable whose value is not handed on with the job."""


def secrets_of(spec: JobSpec) -> tuple[str, ...]:
    """Names of environment variables that a job file leaves out."""
    return tuple(sorted(name for name in spec.environment if SECRET.search(name)))


def write_spec(spec: JobSpec, header: str = "", *, with_secrets: bool = False) -> str:
    """The file's text.

    Args:
        header: becomes comment lines; the names of what was left out follow it.
        with_secrets: leave out nothing.
    """
    left_out = () if with_secrets else secrets_of(spec)
    fields = _without_nothing(msgspec.to_builtins(spec))
    fields.pop("version", None)
    environment = {k: v for k, v in spec.environment.items() if k not in left_out}
    fields.pop("environment", None)
    if environment:
        fields["environment"] = environment
    lines = header.splitlines()
    if left_out:
        lines.append(f"left out, to be set where it is launched: {', '.join(left_out)}")
    comment = "".join(f"# {line}\n" for line in lines)
    # Line ends other than \n would not come back out of a multi-line string.
    has_odd_ends = any("\r" in text for text in spec.files.values())
    body = tomli_w.dumps({KEY: SPEC_VERSION, **fields}, multiline_strings=not has_odd_ends)
    return comment + body


def read_spec(text: str) -> JobSpec:
    """The spec in a file's text.

    Raises:
        SpecError: it is no job file, or of a newer version.
    """
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"this is no job file: {error}", fix="export one: mntrain export JOB"
        ) from error
    version = fields.pop(KEY, None)
    if version is None:
        raise SpecError(
            f"this is no job file: it has no {KEY}", fix="export one: mntrain export JOB"
        )
    if version != SPEC_VERSION:
        raise SpecError(
            f"job files of version {version} are not known here", fix="upgrade jupyter-mntrain"
        )
    try:
        return msgspec.convert(fields, JobSpec)
    except msgspec.ValidationError as error:
        raise SpecError(f"this job file is not valid: {error}") from error


def _without_nothing(value: Any) -> Any:
    """TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None}
    return [_without_nothing(one) for one in value] if isinstance(value, list | tuple) else value
