"""Foreign text: what is shown of it, and that escapes of files read back unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import unicodedata

import msgspec
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.foreign import (
    LINE_LIMIT,
    NAME_LIMIT,
    escaped_json,
    escaped_shell,
    escaped_toml,
    is_safe,
    is_unicode,
    shown,
    shown_json,
    shown_line,
    shown_name,
    visible,
)
from tests.hostile import HOSTILE, LONG, assert_safe, strings

SIGNS = {
    chr(n) for n in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)
}
"""Arabic and Kaithi signs that Unicode calls format controls: they are printed."""

ODD = st.text(st.sampled_from(sorted({*HOSTILE, *"aé\\'\"$\u200d\u200c\ufe0f🧠می"})), max_size=20)


def without_joiners(text: str) -> str:
    return text.replace("\u200d", "").replace("\u200c", "").replace("\u200b", "")


def test_every_control_format_and_separator_character_is_shown_as_an_escape() -> None:
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    every = (chr(number) for number in range(sys.maxunicode + 1))
    for one in every:
        if unicodedata.category(one) in bad and one not in SIGNS and one not in "\n\t":
            assert visible(one).isprintable(), ascii(one)
            assert visible(one).startswith("\\")
    for invisible in "\u115f\u1160\u3164\uffa0\u034f\u180b\ufffe\uffff":
        assert visible(invisible).startswith("\\u")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[2J\x07", "a\\x1b[2J\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("user\u202egpj.exe", "user\\u202egpj.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("two\n\tlines", "two\n\tlines"),
        ("naïve 你好 שלום → 23.7\u00a0GiB 40\u202f%", "naïve 你好 שלום → 23.7\u00a0GiB 40\u202f%"),
    ],
)
def test_what_is_seen(text: str, seen: str) -> None:
    assert visible(text) == seen
    assert visible(seen) == seen


@pytest.mark.parametrize(
    "word", ["می\u200cخواهم", "क्\u200dष", "⚠\ufe0f", "❤\ufe0f\u200d🔥", "👩\u200d💻"]
)
def test_joiners_stay_where_a_script_or_an_emoji_needs_them(word: str) -> None:
    assert visible(word) == word


@pytest.mark.parametrize(
    "word", ["no\u200dde", "\u200cnode", "n\ufe0fode", "\u202e\u200dx", "é\u200d\u200dx"]
)
def test_joiners_that_only_hide_are_seen(word: str) -> None:
    assert "\\u" in visible(word)


def test_only_colors_are_kept() -> None:
    line = "\x1b[31mred\x1b[0m \x1b[2J\x1b]8;;x\x1b\\"
    assert visible(line, keeps_color=True) == "\x1b[31mred\x1b[0m \\x1b[2J\\x1b]8;;x\\x1b\\"


@given(ODD)
def test_shown_text_is_safe_and_is_not_changed_again(text: str) -> None:
    for how in (visible, shown, shown_line, shown_name):
        assert_safe(without_joiners(how(text)))
        assert how(how(text)) == how(text)
    assert "\n" not in shown_line(text)
    assert is_safe(shown_name(text))


@given(ODD)
def test_data_for_a_page_is_what_is_shown(text: str) -> None:
    text = text if is_unicode(text) else ""
    content = {"key": [text, {"nested": text}]}
    encoded = msgspec.json.encode(content)
    assert json.loads(shown_json(encoded)) == {"key": [visible(text), {"nested": visible(text)}]}


@given(ODD)
def test_escapes_read_back_unchanged(text: str) -> None:
    escaped = escaped_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(escaped) == text
    assert_safe(without_joiners(escaped))
    if is_unicode(text):
        for multiline in (False, "\r" not in text):
            written = tomli_w.dumps({"a": text}, multiline_strings=multiline)
            assert tomllib.loads(escaped_toml(written)) == {"a": text}


def test_a_quoted_word_is_the_same_word_for_a_shell() -> None:
    words = ["plain", "two words", "it's $HOME", "\x1b]52;c;x\x07", "'\u202e\\n\x9b'", "a\nb\u2028"]
    command = f"printf '%s\\0' {' '.join(map(escaped_shell, words))}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.decode().split("\0")[:-1] == words
    assert_safe(command)


def test_length_is_capped() -> None:
    assert len(shown_line(LONG)) < LINE_LIMIT + 40
    assert len(shown_name(LONG)) < NAME_LIMIT + 40
    assert shown_line(LONG).endswith("… (96,000 more characters)")
    assert shown(f"{LONG}\nok").endswith("\nok")


def test_a_problem_as_text_is_one_safe_line() -> None:
    problem = Problem(kind=Kind.ERROR, cause=HOSTILE, fix=HOSTILE + LONG, node=HOSTILE)
    assert_safe(str(problem))
    assert "\n" not in str(problem)
    assert len(str(problem)) < 3 * LINE_LIMIT
    assert strings(msgspec.to_builtins(problem))[3] == HOSTILE, "the record keeps what was given"
