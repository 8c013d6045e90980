"""Quantities: durations and sizes as people write them."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.quantities import parse_duration, parse_size, size_text
from tests.wording import wording


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("30m", 1800.0), ("10 min", 600.0), ("1.5h", 5400.0), ("7D", 604800.0)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-3s", "3 weeks", "1h30m", "²s"])
def test_what_is_not_a_duration_says_how_to_write_one(text):
    with pytest.raises(ValueError, match=wording("write it like 90s, 30m, 2h or 7d")):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64 KiB", 65536), ("1.5GiB", 3 << 29), ("12 B", 12), ("8 mib", 8 << 20)]
)
def test_sizes_go_there_and_back(text, size):
    assert parse_size(text) == size
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize("text", ["", "64", "KiB", "64 KB", "-1 MiB"])
def test_what_is_not_a_size_says_how_to_write_one(text):
    with pytest.raises(ValueError, match=wording("write it like 64 KiB")):
        parse_size(text)
