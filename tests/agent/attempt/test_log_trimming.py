"""Log trimming: a long log keeps its beginning and end, within its limit on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.log_trimming import logs_of, next_data, trim

KEPT, SLACK = 64 << 10, 16 << 10


def taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def grown(path: Path, size: int) -> bytes:
    lines = b"".join(b"line %07d\n" % number for number in range(size // 13))
    path.write_bytes(lines)
    os.sync()
    return lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_log_that_is_short_stays_as_it_is(log: Path) -> None:
    text = grown(log, KEPT)
    assert not trim(log, kept_bytes=KEPT, slack_bytes=SLACK)
    assert log.read_bytes() == text
    assert not trim(log.with_name("nowhere"))


def test_a_long_one_keeps_both_ends_and_every_offset(log: Path) -> None:
    text = grown(log, 1 << 20)
    with log.open("ab", buffering=0) as writer:
        if not trim(log, kept_bytes=KEPT, slack_bytes=SLACK):
            pytest.skip("this file system cannot punch holes")
        writer.write(b"and on\n")
    now = log.read_bytes()
    assert len(now) == len(text) + 7
    assert now[: KEPT // 2] == text[: KEPT // 2]
    assert now[-(KEPT // 2) :] == (text + b"and on\n")[-(KEPT // 2) :]
    assert taken(log) <= KEPT + SLACK
    assert not trim(log, kept_bytes=KEPT, slack_bytes=SLACK), "there is nothing more to give back"
    with log.open("rb") as file:
        size = len(now)
        assert next_data(file.fileno(), 10, size) == 10
        first = next_data(file.fileno(), KEPT, size)
        assert KEPT < first < size
        assert now[first - 1] == 0
        assert now[first:].startswith(text[first : first + 100])
        assert next_data(file.fileno(), size, size) == size


def test_a_log_that_grows_for_ever_takes_bounded_room(log: Path) -> None:
    piece = b"x" * 65_536  # no newline anywhere
    with log.open("ab", buffering=0) as writer:
        for _ in range(64):
            writer.write(piece)
            os.fsync(writer.fileno())
            trim(log, kept_bytes=KEPT, slack_bytes=SLACK)
    assert log.stat().st_size == 64 * len(piece)
    assert taken(log) <= KEPT + SLACK + len(piece)


def test_what_is_trimmed_of_an_attempt(tmp_path: Path) -> None:
    rank = tmp_path / "ranks" / "none_x" / "attempt_0" / "0"
    rank.mkdir(parents=True)
    for name in ("stdout.log", "stderr.log", "error.json"):
        (rank / name).touch()
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    for name in ("rank-0.ndjson", "controls.json"):
        (metrics / name).touch()
    names = [path.relative_to(tmp_path).as_posix() for path in logs_of(tmp_path)]
    assert names[:2] == ["log", "metrics/rank-0.ndjson"]
    assert sorted(path.rpartition("/")[2] for path in names[2:]) == ["stderr.log", "stdout.log"]
