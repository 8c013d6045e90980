"""Suggestions for misspelled words."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.text.spelling import closest


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("--prot", ["--port", "--help", "--set"], ["--port"]),
        ("--stepz", ["--set", "--cluster", "--help"], []),
        ("--version", ["--json", "--help", "-h"], []),
        ("nosuch.toml", ["both.toml", "missched.toml", "nodata.toml"], []),
        ("tiny.tml", ["tiny.toml", "other.toml"], ["tiny.toml"]),
        ("quick-chek", ["quick-check", "other.toml"], ["quick-check"]),
        ("train.py", ["train.py.bak", "train.toml"], ["train.toml"]),
    ],
)
def test_only_what_resembles_the_word_itself_is_suggested(word, known, near):
    assert closest(word, known) == near
