"""Loaded first by every Python that a test starts, because its folder is on ``PYTHONPATH``."""

import os

import scrambled_words

if os.environ.get(scrambled_words.VARIABLE) == "1":
    scrambled_words.install()
