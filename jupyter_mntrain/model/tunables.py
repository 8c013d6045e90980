"""Tunables: loads timeouts, intervals and limits, with the user's changes.

Later sources win: ``jupyter_mntrain/tunables.toml``; the user's file (``$MNTRAIN_CONFIG``, or
``mntrain/config.toml`` in the user's configuration directory); variables
``MNTRAIN_<SECTION>_<NAME>``. They are read once per process. Modules read constants from here when
imported, so a bad value does not raise then: the shipped values apply, and each program calls
:func:`check` at its start, which reports the error in one line.

The suffix of a name is its unit: ``_s`` seconds (a number, or ``"10 min"``), ``_bytes`` (a whole
number, or ``"16 MiB"``). Other whole numbers are counts, other numbers ratios.
"""

from __future__ import annotations

import functools
import itertools
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import parse_duration, parse_size, size_text
from jupyter_mntrain.model.whereabouts import kept_folder

SHIPPED: Final = Path(__file__).parents[1] / "tunables.toml"
CONFIG_VARIABLE: Final = "MNTRAIN_CONFIG"
DEFAULT: Final = "default"
SMALLEST: Final = 1e-3
LONGEST_S: Final = 1e9
LARGEST: Final = 10**15

_ASCENDING: Final = (
    "liveness.heartbeat_interval_s",
    "liveness.suspect_after_s",
    "liveness.lost_after_s",
)
"""Settings whose values must increase in this order."""

Value = float | int


class Tunable(NamedTuple):
    """One setting.

    Args:
        key: ``section.name``.
        source: ``default``, the path of a file, or ``$VARIABLE``.
        reason: for the shipped value: its comment in the file.
    """

    key: str
    value: Value
    default: Value
    source: str
    reason: str

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def unit(self) -> str:
        endings = {"_s": "s", "_bytes": "bytes"}
        return next((unit for end, unit in endings.items() if self.key.endswith(end)), "")

    @property
    def text(self) -> str:
        """The value and its unit, for people."""
        if self.unit == "bytes" and isinstance(self.value, int):
            return size_text(self.value)
        return f"{self.value:g} {self.unit}".rstrip()


class Tunables(NamedTuple):
    """All settings by key; ``error`` is the first invalid one, if any."""

    by_key: dict[str, Tunable]
    error: SpecError | None


def seconds(key: str) -> float:
    """Return a duration, in seconds."""
    return float(_value(key))


def size(key: str) -> int:
    """Return a size, in bytes."""
    return int(_value(key))


def count(key: str) -> int:
    return int(_value(key))


def ratio(key: str) -> float:
    return float(_value(key))


def check() -> None:
    """Validate the user's settings. Every program calls this at its start.

    Raises:
        SpecError: an unknown name, a value of the wrong type or out of range, a missing file.
    """
    error = _current().error
    if error is not None:
        raise error


def all_tunables() -> tuple[Tunable, ...]:
    """Return all settings, in the order of the shipped file."""
    return tuple(_current().by_key.values())


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file, whether or not it exists.

    Raises:
        SpecError: this user has no home folder.
    """
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else kept_folder("config") / "config.toml"


def load(environment: Mapping[str, str]) -> Tunables:
    """Load the shipped values with the changes of file and environment."""
    shipped = {tunable.key: tunable for tunable in _shipped()}
    found = dict(shipped)
    try:
        for key, value, source in _changes(environment, found):
            found[key] = _changed(shipped[key], value, source)
        for lower, higher in itertools.pairwise(_ASCENDING):
            _check_order(found[lower], found[higher])
    except SpecError as error:
        return Tunables(shipped, error.with_traceback(None))
    return Tunables(found, None)


@functools.cache
def _current() -> Tunables:
    return load(os.environ)


def _value(key: str) -> float:
    return _current().by_key[key].value


def _shipped() -> Iterator[Tunable]:
    text = SHIPPED.read_text(encoding="utf-8")
    reasons = _comments(text)
    for section, values in tomllib.loads(text).items():
        for name, value in values.items():
            key = f"{section}.{name}"
            default = _checked(key, value, value)
            yield Tunable(key, default, default, DEFAULT, reasons.get(key, ""))


def _comments(text: str) -> dict[str, str]:
    """Return the comment above each key; several keys may share one."""
    section, lines, reasons = "", list[str](), {}
    in_comment = False
    for line in text.splitlines():
        if line.startswith("["):
            section, lines = line.strip("[]"), []
        elif line.startswith("#"):
            lines = [*lines, line.removeprefix("#").strip()] if in_comment else [line[1:].strip()]
        elif "=" in line:
            reasons[f"{section}.{line.partition('=')[0].strip()}"] = " ".join(lines)
        else:
            lines = []
        in_comment = line.startswith("#")
    return reasons


def _changes(
    environment: Mapping[str, str], known: Mapping[str, Tunable]
) -> Iterator[tuple[str, Any, str]]:
    """Yield ``(key, value, source)`` from the user's file, then from the environment."""
    try:
        path = config_file(environment)
    except SpecError:  # told by what needs a home folder; settings do not
        path, changes = Path(), {}
    else:
        changes = _file(path, is_named=CONFIG_VARIABLE in environment)
    for section, values in changes.items():
        if not isinstance(values, dict):
            raise _unknown(f"{path}: {section}", section, known)
        for name, value in values.items():
            if (key := f"{section}.{name}") not in known:
                raise _unknown(f"{path}: {key}", key, known)
            yield key, value, str(path)
    by_variable = {_variable(key): key for key in known}
    prefixes = tuple({_variable(one.section) + "_" for one in known.values()})
    for variable, text in environment.items():
        if variable in by_variable:
            yield by_variable[variable], text, f"${variable}"
        elif variable.startswith(prefixes):
            raise _unknown(f"${variable}", variable, by_variable)


def _changed(tunable: Tunable, value: Any, source: str) -> Tunable:
    try:
        checked = _checked(tunable.key, value, tunable.default)
    except (TypeError, ValueError) as error:
        key = source if source.startswith("$") else f"{source}: {tunable.key}"
        raise SpecError(f"{key}: {error}", fix=f"the default is {tunable.text}") from None
    return tunable._replace(value=checked, source=source)


def _file(path: Path, *, is_named: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        if not is_named:
            return {}
        raise SpecError(f"${CONFIG_VARIABLE}: no file {path}", fix="correct or unset it") from None
    except OSError as error:
        raise SpecError(
            f"{path} cannot be read: {error.strerror}", fix="make it readable"
        ) from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text", fix="save it as UTF-8") from None
    except ValueError as error:
        raise SpecError(f"{path} is not TOML: {error}", fix="correct that line") from None


def _variable(key: str) -> str:
    return "MNTRAIN_" + key.replace(".", "_").upper()


def _unknown(where: str, key: str, known: Mapping[str, object]) -> SpecError:
    from jupyter_mntrain.model.text.spelling import use_nearest  # difflib, for this message only

    fix = use_nearest(key, known, "see all of them: mntrain config")
    return SpecError(f"{where} is not a setting of mntrain", fix=fix)


def _checked(key: str, value: Any, default: Any) -> Value:
    """Check a value against the type and range of its default and unit.

    Raises:
        TypeError, ValueError: it does not match; one line says why.
    """
    number = _parsed(key, value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{value!r} is not a number")
    is_whole = not isinstance(default, float)  # a size is text in the file
    if is_whole and number % 1 != 0:  # true of NaN and infinity, too
        raise ValueError(f"{value} is not a whole number")
    least, most = (1, LARGEST) if is_whole else (SMALLEST, LONGEST_S)
    if not least <= number <= most:
        raise ValueError(f"{value} is not from {least:g} to {most:g}")
    return int(number) if is_whole else float(number)


def _parsed(key: str, text: str) -> float:
    """Parse a number, or a quantity with its unit."""
    try:
        return float(text)
    except ValueError:
        if key.endswith("_s"):
            return parse_duration(text)
        if key.endswith("_bytes"):
            return parse_size(text)
        raise ValueError(f"{text!r} is not a number") from None


def _check_order(lower: Tunable, higher: Tunable) -> None:
    if lower.value >= higher.value:
        raise SpecError(
            f"{higher.key} = {higher.text} is not more than {lower.key} = {lower.text}",
            fix=f"the defaults are {higher.default} and {lower.default}",
        )
