"""Log trimming: a long log keeps its beginning and end, within its limit on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.supervisor import (
    MOST_RECORDERS,
    NCCL_BYTES,
    RECORDERS_BYTES,
    logs_of,
    nccl_files,
    next_data,
    trim,
    trim_logs,
)
from jupyter_mntrain.model.environment import RECORDERS

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


def test_nccls_own_files_are_bounded_while_nccl_writes_on(tmp_path: Path) -> None:
    (tmp_path / "nccl").mkdir()
    path = tmp_path / "nccl" / "hal.11.log"
    line = b"hal:11:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    with path.open("wb", buffering=0) as nccl:  # which opens it so
        nccl.write(b"hal:11:11 [0] NCCL INFO Using network Socket\n")
        for _ in range(3):
            nccl.write(line * (2 * NCCL_BYTES // len(line)))
            os.sync()
            trim_logs(tmp_path)
        nccl.write(b"the end\n")
    assert list(nccl_files(tmp_path)) == [path]
    assert taken(path) <= 1.5 * NCCL_BYTES
    content = path.read_bytes()
    assert content.startswith(b"hal:11:11 [0] NCCL INFO Using network Socket\n")
    assert content.endswith(line + b"the end\n")


def test_the_first_flight_recorders_are_kept_within_their_limits(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "rank-0.ndjson").touch()
    size = RECORDERS_BYTES // 4
    for rank in range(6):
        path = folder / f"{RECORDERS}{rank}"
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, (100 - rank, 100 - rank))  # the last ranks wrote first
    trim_logs(tmp_path)
    kept = {path.name for path in folder.iterdir()}
    assert kept == {"rank-0.ndjson", *(f"{RECORDERS}{rank}" for rank in (2, 3, 4, 5))}
    for rank in range(10, 10 + MOST_RECORDERS):
        (folder / f"{RECORDERS}{rank}").touch()
    trim_logs(tmp_path)
    assert len(list(folder.glob(f"{RECORDERS}*"))) == MOST_RECORDERS
