"""Job file: a job as versioned TOML that can be read, kept and launched again."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import tomli_w

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import SPEC_VERSION, JobSpec, Participant
from jupyter_mntrain.model.spelling import closest

KEY = "mntrain_job"
"""What tells a job file from a recipe; its value is the version."""

_EXPORT = "export one: mntrain export JOB FILE"
_SPEC_KEYS = tuple(name for name in JobSpec.__struct_fields__ if name != "version")
_PARTICIPANT_KEYS = Participant.__struct_fields__
_SECRET = re.compile(r"TOKEN(?!IZER)|KEY|PASSWORD|PASSWD|SECRET|CREDENTIAL", re.IGNORECASE)
"""``TOKENIZERS_PARALLELISM`` is set for many trainings and hides nothing."""
_KEY_LINE = re.compile(rf"^{KEY}\s*=\s*\d", re.MULTILINE)
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def secret_names(spec: JobSpec) -> tuple[str, ...]:
    """Variables of the job's environment whose names look like secrets: left out of its file."""
    return tuple(sorted(name for name in spec.environment if _SECRET.search(name)))


def write_spec(
    spec: JobSpec,
    *,
    job_id: str | None = None,
    submitted_s: float | None = None,
    with_secrets: bool = False,
) -> str:
    """The file's text; :func:`read_spec` makes the same spec of it.

    Args:
        job_id: the job that the spec is of, for the comment at the top.
        submitted_s: when that job was launched, Unix time.
        with_secrets: also write what :func:`secret_names` finds.
    """
    left_out = () if with_secrets else secret_names(spec)
    environment = {name: spec.environment[name] for name in spec.environment.keys() - left_out}
    parts = [_header(spec, job_id, submitted_s, left_out), _top(spec)]
    parts += [f"[[participants]]\n{_lines(_participant(one))}" for one in spec.participants]
    if environment:
        parts.append(f"[environment]\n{_lines(dict(sorted(environment.items())))}")
    if spec.files:
        files = "".join(_file(name, text) for name, text in spec.files.items())
        parts.append(f"[files]\n{files}")
    return "\n".join(parts)


def is_spec(text: str) -> bool:
    """Whether this is meant as a job file, also where a slip makes it no valid TOML."""
    try:
        return KEY in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return _KEY_LINE.search(text) is not None


def read_spec(text: str, *, name: str = "job file") -> JobSpec:
    """The spec in a file's text. Without participants, it has none.

    Args:
        name: what errors call the file.

    Raises:
        SpecError: it is no job file, of a newer version, or has a key or value that is wrong.
    """
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{name}: not valid TOML: {error}", fix=_EXPORT) from None
    _check_version(fields, name)
    _refuse_unknown(fields, _SPEC_KEYS, name)
    participants = fields.setdefault("participants", [])
    for number, participant in enumerate(participants if isinstance(participants, list) else ()):
        if isinstance(participant, dict):
            _refuse_unknown(participant, _PARTICIPANT_KEYS, f"{name}: participants[{number}]")
    try:
        return msgspec.convert(fields, JobSpec)
    except msgspec.ValidationError as error:
        raise SpecError(f"{name}: {_words(error)}", fix="correct that value") from None


def _header(
    spec: JobSpec, job_id: str | None, submitted_s: float | None, left_out: Iterable[str]
) -> str:
    name = f"{job_id}.toml" if job_id else "FILE.toml"
    lines = [f"A job of jupyter_mntrain: {spec.name}", f"Launch it again: mntrain launch {name}"]
    if job_id:
        when = ""
        if submitted_s is not None:
            when = f", launched {datetime.fromtimestamp(submitted_s, UTC):%Y-%m-%d %H:%M} UTC"
        lines.append(f"Written from job {job_id}{when}")
    lines.append("Options of launch override these values.")
    if left_out:
        lines.append(f"Omitted because they look like secrets: {', '.join(left_out)}")
        lines.append("Pass them again: mntrain launch FILE --env NAME=VALUE")
    return "".join(f"# {_printable(line)}\n" for line in lines)


def _top(spec: JobSpec) -> str:
    fields: dict[str, Any] = {KEY: SPEC_VERSION, "name": spec.name, "entry": list(spec.entry)}
    if spec.torchrun_arguments:
        fields["torchrun_arguments"] = list(spec.torchrun_arguments)
    if spec.port is not None:
        fields["port"] = spec.port
    if spec.link_capacity_bytes_per_s is not None:
        fields["link_capacity_bytes_per_s"] = spec.link_capacity_bytes_per_s
    if spec.max_restarts:
        fields["max_restarts"] = spec.max_restarts
    if spec.on_stall != "report":
        fields["on_stall"] = spec.on_stall
    if spec.priority:
        fields["priority"] = spec.priority
    if spec.min_nodes is not None:
        fields["min_nodes"] = spec.min_nodes
    return _lines(fields)


def _participant(one: Participant) -> dict[str, Any]:
    fields: dict[str, Any] = {"node": one.node, "nproc": one.nproc}
    if one.gpus:
        fields["gpus"] = list(one.gpus)
    if one.interface is not None:
        fields["interface"] = one.interface
    return fields


def _file(name: str, text: str) -> str:
    # In a string of several lines a line's end is the reader's own; a \r\n survives only escaped.
    return tomli_w.dumps({name: text}, multiline_strings="\r\n" not in text)


def _lines(fields: Mapping[str, Any]) -> str:
    return tomli_w.dumps(fields)


def _printable(text: str) -> str:
    """A comment is one line and has no control characters."""
    return "".join(one if one.isprintable() else "�" for one in text)


def _check_version(fields: dict[str, Any], name: str) -> None:
    if KEY not in fields:
        near = closest(KEY, fields)
        fix = f"write {KEY} instead of {near[0]}" if near else _EXPORT
        raise SpecError(
            f"{name}: not a job file: it lacks the line {KEY} = {SPEC_VERSION} at its top", fix=fix
        )
    version = fields.pop(KEY)
    if type(version) is not int or version < 1:
        raise SpecError(
            f"{name}: {KEY} = {version!r} is not a version", fix=f"write {KEY} = {SPEC_VERSION}"
        )
    if version > SPEC_VERSION:
        raise SpecError(
            f"{name}: job file version {version} is newer than supported here ({SPEC_VERSION})",
            fix="upgrade jupyter-mntrain",
        )


def _refuse_unknown(fields: Mapping[str, Any], known: tuple[str, ...], name: str) -> None:
    for key in fields:
        if key not in known:
            near = closest(key, known)
            fix = f"did you mean {near[0]}" if near else f"use one of {', '.join(known)}"
            raise SpecError(f"{name}: unknown key {key!r}", fix=fix)


def _words(error: msgspec.ValidationError) -> str:
    """``Expected `int`, got `str` - at `$.port``` → ``port: expected `int`, got `str```."""
    said = str(error)
    place = _PLACE.search(said)
    if place is None:
        return said
    what = said[: place.start()]
    return f"{place['path']}: {what[:1].lower()}{what[1:]}"
