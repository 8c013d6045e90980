"""Job file: writes and reads a job as versioned TOML, to be stored and launched again."""

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
from jupyter_mntrain.model.text.foreign import escaped_toml, shown_line
from jupyter_mntrain.model.text.secrets import HIDDEN, has_hidden, is_secret, shown_words
from jupyter_mntrain.model.text.spelling import closest, use_nearest

KEY = "mntrain_job"
"""Key that distinguishes a job file from a recipe; its value is the version."""

_EXPORT = "export one: mntrain export JOB --output FILE"
_OF_ONE_JOB = ("version", "origin", "session", "chosen")
"""Fields that a job file does not carry: a job that is launched from it starts over, maybe on other
GPUs."""
BEGIN = "begin"
"""Key of the checkpoint that a job begins with, if a person named its directory."""
_SPEC_KEYS = (*(name for name in JobSpec.__struct_fields__ if name not in _OF_ONE_JOB), BEGIN)
_PARTICIPANT_KEYS = Participant.__struct_fields__
_KEY_LINE = re.compile(rf"^{KEY}\s*=\s*\d", re.MULTILINE)
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def secret_names(spec: JobSpec) -> tuple[str, ...]:
    """Return the variables that are or look like secrets; job files hold only their names."""
    looking = {name for name, value in spec.environment.items() if is_secret(name, value)}
    return tuple(sorted(looking.union(spec.from_environment)))


def write_spec(
    spec: JobSpec,
    *,
    job_id: str | None = None,
    submitted_s: float | None = None,
    with_secrets: bool = False,
) -> str:
    """Write a job file's text, the inverse of :func:`read_spec`.

    What :func:`secret_names` finds is taken from the environment when the file is launched.

    Args:
        job_id: the spec's job, for the comment at the top.
        submitted_s: when that job was launched, Unix time.
        with_secrets: also write their values, and secrets among the arguments.
    """
    left_out = () if with_secrets else secret_names(spec)
    environment = {name: spec.environment[name] for name in spec.environment.keys() - left_out}
    if not with_secrets:
        spec = msgspec.structs.replace(
            spec,
            from_environment=left_out,
            entry=shown_words(spec.entry),
            torchrun_arguments=shown_words(spec.torchrun_arguments),
        )
    parts = [_header(spec, job_id, submitted_s, left_out), _top(spec)]
    parts += map(_participant, spec.participants)
    if environment:
        parts.append(f"[environment]\n{tomli_w.dumps(dict(sorted(environment.items())))}")
    if spec.files:
        files = "".join(_file(name, text) for name, text in spec.files.items())
        parts.append(f"[files]\n{files}")
    return escaped_toml("\n".join(parts))


def is_spec(text: str) -> bool:
    """Whether the text is meant as a job file, even if it is not valid TOML."""
    try:
        return KEY in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return _KEY_LINE.search(text) is not None


def read_spec(text: str, *, name: str = "job file") -> JobSpec:
    """Read the spec in a job file's text. Participants may be missing.

    Args:
        name: the file's, for errors.

    Raises:
        SpecError: it is not a job file, has a newer version, or a wrong key or value.
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
    if (begin := fields.pop(BEGIN, None)) is not None:
        fields["origin"] = {"is_branch": True, "path": begin}
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
        lines.append("Taken from the environment that it is launched from, since they are secrets,")
        lines.append(f"or look like it: {', '.join(left_out)}")
    if has_hidden((*spec.entry, *spec.torchrun_arguments)):
        lines.append(f"Secrets among its arguments are left out: replace each {HIDDEN}")
    return "".join(f"# {shown_line(line)}\n" for line in lines)


def _top(spec: JobSpec) -> str:
    """Write the scalar fields and lists; name and entry even if they are the defaults."""
    apart = ("name", "entry", "participants", "files", "environment", *_OF_ONE_JOB)
    others = {k: v for k, v in msgspec.to_builtins(spec).items() if k not in apart}
    fields = {KEY: SPEC_VERSION, "name": spec.name, "entry": list(spec.entry), **others}
    if spec.origin is not None and spec.origin.place is not None:
        fields[BEGIN] = spec.origin.place
    return tomli_w.dumps(fields)


def _participant(one: Participant) -> str:
    fields = {"node": one.node, "nproc": one.nproc} | msgspec.to_builtins(one)
    return f"[[participants]]\n{tomli_w.dumps(fields)}"


def _file(name: str, text: str) -> str:
    # TOML readers normalize line ends in multi-line strings: \r\n survives only escaped.
    return tomli_w.dumps({name: text}, multiline_strings="\r\n" not in text)


def _check_version(fields: dict[str, Any], name: str) -> None:
    if KEY not in fields:
        near = closest(KEY, fields)
        fix = f"write {KEY} instead of {near[0]}" if near else _EXPORT
        raise SpecError(
            f"{name}: not a job file: its first line is not {KEY} = {SPEC_VERSION}", fix=fix
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
            fix = use_nearest(key, known, f"use one of {', '.join(known)}", most=1)
            raise SpecError(f"{name}: unknown key {key!r}", fix=fix)


def _words(error: msgspec.ValidationError) -> str:
    """Turn ``Expected `int`, got `str` - at `$.port``` into ``port: expected `int`, got `str```."""
    said = str(error)
    place = _PLACE.search(said)
    if place is None:
        return said
    what = said[: place.start()]
    return f"{place['path']}: {what[:1].lower()}{what[1:]}"
