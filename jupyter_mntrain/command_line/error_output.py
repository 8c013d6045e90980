"""Error output: one line for people or, with ``--json``, the problem as data. Always on stderr."""

from __future__ import annotations

import codecs
import io
import os
import sys
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from jupyter_mntrain.command_line.needed_packages import BAD_INPUT, blamed_package, say_blamed
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import escaped_json, shown

_PLAIN: Final = {
    **dict(zip("✓✕⊠⚠▶◀●◔⟳■□▪△▲▽▼·•×÷µ⟨⟩⟦⟧≈‘’“”", "+xx!><*o@#o*^^vv.*x/u<>[]~''\"\"", strict=True)),
    **dict(zip("▁▂▃▄▅▆▇█░▒▓", "__.--==##:%", strict=True)),
    **dict.fromkeys("│┃├┤└┘┌┐┼", "|"),
    **dict.fromkeys("─━╸╺‐‑–—−", "-"),
    "…": "...",
    "→": "->",
    "←": "<-",
    "⇄": "<->",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "∞": "inf",
    "°": " deg",
    "§": "section ",
}
"""What is written where an encoding lacks a mark."""


def replace_unencodable() -> None:
    """Make stdout and stderr replace what their encoding lacks (Latin-1 lacks ✓) with ASCII, and
    write to the null device if they were closed, as by ``>&-``.
    """
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    codecs.register_error("mntrain", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        # A terminal's or a file's, not what stands in for it in notebooks and tests.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="mntrain")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")  # until this process ends


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error: substitute the nearest ASCII, or ``?``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(letter: str) -> str:
    """Replace a symbol by its ASCII stand-in, or strip a letter's accent."""
    if letter in _PLAIN:
        return _PLAIN[letter]
    bare = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return bare or "?"


def print_error(error: MntrainError, words: Sequence[str], say: Callable[[str], None]) -> int:
    """Print an error as the command line asks. Returns the exit code.

    Args:
        words: the command line. They are searched, not parsed: it may be what is wrong.
        say: prints the line for people.
    """
    options = words[: words.index("--")] if "--" in words else words
    trace = _trace(error) if "--traceback" in options else ""
    if "--json" in options:
        import msgspec

        problem = error.problem
        problem = msgspec.structs.replace(problem, detail=trace or problem.detail)
        text = msgspec.json.format(msgspec.json.encode(problem), indent=2).decode()
        sys.stderr.write(f"{escaped_json(text)}\n")
    else:
        sys.stderr.write(shown(trace))
        say(str(error))
    return error.exit_code


def print_defect(error: Exception, program: str) -> int:
    """Print an unexpected exception as Python would, but safe to show. Returns the exit code.

    One that comes from a package in the way, or too old, is told as that.
    """
    told = blamed_package(error)
    if told is not None:
        say_blamed(program, told)
        return BAD_INPUT
    sys.stderr.write(shown(_trace(error)))
    return 1


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
