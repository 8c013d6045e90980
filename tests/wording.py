"""Tests of wording: skipped where sentences are scrambled."""

from __future__ import annotations

import os
import re

from tests.scrambling.scrambled_words import VARIABLE


def is_scrambled() -> bool:
    """Whether every sentence of ours is scrambled, in this process and those it starts."""
    return os.environ.get(VARIABLE) == "1"


def says(words: str, text: str) -> bool:
    """Whether a sentence of ours holds these words."""
    return is_scrambled() or words in text


def wording(pattern: str) -> str:
    """For ``pytest.raises(match=…)``: a pattern of words of ours."""
    return "." if is_scrambled() else pattern


def reads(pattern: str, text: str) -> bool:
    """Whether a sentence of ours reads like this."""
    return is_scrambled() or re.search(pattern, text) is not None
