r"""Untrusted text: makes text from other programs and people safe to show. Pure.

Foreign is all text that is not a literal of ours: names, exceptions, log lines, file names, what
agents and mDNS say. A terminal obeys control characters, and bidirectional controls let one text
look like another (CVE-2021-42574). They are shown as escapes, ``\x1b`` or ``\u202e``: something was
there. It is done where text leaves the program, once; records keep what they were given.

======================  =================================================================
edge                    done in
======================  =================================================================
terminal                :mod:`jupyter_mntrain.show.safe_console`, ``command_line.error_output``
notebook                :mod:`jupyter_mntrain.notebook.output`
page                    :func:`shown_json`, in ``server.messages``
picture                 ``show.picture.canvas``
log of the agent        :mod:`jupyter_mntrain.agent.access.log`
errors as text          ``Problem.__str__``
JSON, TOML and shell    :func:`escaped_json`, :func:`escaped_toml`, :func:`escaped_shell`: lossless
======================  =================================================================
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

LINE_LIMIT: Final = 4000
"""40 lines of a terminal. Exceptions of libraries can hold whole tensors."""
NAME_LIMIT: Final = 200
"""Limit of names that anyone on the network may announce: our own are shorter."""

_UNSAFE_CLASS: Final = (
    # C0 without tab and newline, DEL, C1
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"
    # Bidirectional controls, line separators and other format controls
    r"\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufff0-\ufffc\ufffe\uffff"
    r"\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Letters and marks that take no ink: Unicode's Default_Ignorable_Code_Point
    r"\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    # Lone surrogates cannot be encoded
    r"\ud800-\udfff"
)
_JOINERS: Final = r"\u200b-\u200d"
_SELECTORS: Final = r"\ufe0e\ufe0f"
_JOINED: Final = rf"[^\x00-\x7f{_UNSAFE_CLASS}{_JOINERS}{_SELECTORS}]"
# Persian, Hindi, Khmer and emoji need joiners and selectors. Elsewhere they only hide.
_UNSAFE: Final = re.compile(
    rf"[{_UNSAFE_CLASS}]"
    rf"|(?<!{_JOINED})[{_SELECTORS}]"
    rf"|(?<!{_JOINED})(?<!{_JOINED}\ufe0f)[{_JOINERS}]"
)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_BREAK: Final = re.compile(r"[\n\t\v\f\r]+ *")
_COLOR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_JSON_ESCAPE: Final = re.compile(rf"\\(?:u[0-9a-fA-F]{{4}}|.)|{_UNSAFE.pattern}")


def is_safe(text: str) -> bool:
    """Whether a text can be shown unchanged on one line."""
    return not _UNSAFE.search(text) and not _BREAK.search(text)


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: file names and arguments may hold bytes that are not UTF-8."""
    return text.isascii() or not _SURROGATE.search(text)


def encodable(text: str) -> str:
    """Replace what cannot be encoded, and thus not stored in records, by ``?``."""
    return _SURROGATE.sub("?", text)


def visible(text: str, *, keeps_color: bool = False) -> str:
    """Replace control characters and what a terminal cannot show. Newlines and tabs stay.

    Args:
        keeps_color: leave ANSI colors (SGR) in; nothing else that begins with escape.
    """
    if text.isascii() and text.isprintable():
        return text
    if keeps_color:
        pieces = _COLOR.split(text)  # every second one is a color
        return "".join(one if at % 2 else visible(one) for at, one in enumerate(pieces))
    return _UNSAFE.sub(lambda found: _escape(found[0]), text)


def shown(text: str, limit: int = LINE_LIMIT) -> str:
    """Apply :func:`visible`, and cut each line at ``limit`` characters."""
    if len(text) <= limit:
        return visible(text)
    return visible("\n".join(_cut(line, limit) for line in text.split("\n")))


def shown_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Put the text on one line, safe to show and cut at ``limit`` characters."""
    return visible(_cut(_BREAK.sub(" ", text), limit))


def shown_name(text: str) -> str:
    """Make an untrusted name safe to show, on one line."""
    return shown_line(text, NAME_LIMIT)


def without_color(text: str) -> str:
    """Remove ANSI colors from a text."""
    return _COLOR.sub("", text)


def shown_json(encoded: bytes) -> bytes:
    r"""Encode as JSON with :func:`visible` applied to every string, for pages.

    It replaces escaped control characters, ``\u001b``, and unescaped others by what a person is
    shown, ``\\x1b``: no page has to look at its strings again.
    """
    if encoded.isascii() and b"\\" not in encoded and b"\x7f" not in encoded:
        return encoded
    return _JSON_ESCAPE.sub(_shown_in_json, encoded.decode()).encode()


def escaped_json(text: str) -> str:
    r"""Escape control characters in JSON like ``\u202e``, so that it decodes to the same value."""
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def escaped_toml(text: str) -> str:
    """Escape control characters in TOML with basic strings, so that it decodes to the
    same value.
    """
    return _UNSAFE.sub(lambda found: _unicode_escape(found[0]), text)


def escaped_shell(text: str) -> str:
    """Quote a text as one word for bash, as ``$'…'`` if it holds control characters."""
    if not _UNSAFE.search(text):
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSAFE.sub(lambda found: _unicode_escape(found[0]), quoted)}'"


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else _unicode_escape(char)


def _unicode_escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _shown_in_json(found: re.Match[str]) -> str:
    piece = found[0]
    if not piece.startswith("\\"):
        return f"\\{_escape(piece)}"
    char: str = json.loads(f'"{piece}"')
    return f"\\{_escape(char)}" if _UNSAFE.fullmatch(char) else piece


def _cut(line: str, limit: int) -> str:
    if len(line) <= limit:
        return line
    return f"{line[:limit]}… ({len(line) - limit:,} more characters)"
