"""Ring: rows by the place of their time, of which none is taken for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.usage import Ring

ROWS = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ring"


@pytest.fixture
def ring(path: Path) -> Ring:
    return Ring(path, width=2, rows=ROWS)


def rows_of(*numbers: int) -> dict[int, tuple[float, ...]]:
    return {number: (float(number), -0.5) for number in numbers}


def test_what_was_never_written_is_missing(ring: Ring, path: Path) -> None:
    assert ring.read(0, 5) == {}
    ring.write(rows_of(103, 104, 107))
    assert ring.read(100, 110) == rows_of(103, 104, 107)
    assert ring.read(104, 107) == rows_of(104)
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_rows_are_kept_in_a_file_that_does_not_grow(ring: Ring, path: Path) -> None:
    for begin in range(0, 100, 5):
        ring.write(rows_of(*range(begin, begin + 5)))
    assert ring.read(0, 200) == {}, "no row of this range's last ten"
    assert ring.read(0, 100) == rows_of(*range(90, 100))
    assert path.stat().st_size == ROWS * 8 * (2 + 2)


def test_a_row_of_an_earlier_turn_is_not_taken_for_a_newer_one(ring: Ring) -> None:
    ring.write(rows_of(11, 12))
    ring.write(rows_of(25))
    assert ring.read(20, 30) == rows_of(25)


@pytest.mark.parametrize("at", range(0, 32, 3))
def test_a_damaged_row_is_missing_and_no_other(ring: Ring, path: Path, at: int) -> None:
    ring.write(rows_of(*range(ROWS)))
    content = bytearray(path.read_bytes())
    content[3 * 32 + at] ^= 0x40
    path.write_bytes(content)
    assert ring.read(0, ROWS) == rows_of(*(set(range(ROWS)) - {3}))


def test_a_half_written_file_loses_only_its_tail(ring: Ring, path: Path) -> None:
    ring.write(rows_of(*range(ROWS)))
    path.write_bytes(path.read_bytes()[: 6 * 32 + 7])
    assert ring.read(0, ROWS) == rows_of(*range(6))
    ring.write(rows_of(8))
    assert ring.read(0, ROWS) == rows_of(*range(6), 8)


def test_a_file_of_another_size_is_read_as_far_as_it_fits(path: Path, ring: Ring) -> None:
    """After a change of how long it is kept."""
    ring.write(rows_of(*range(90, 100)))
    shorter = Ring(path, width=2, rows=4)
    assert shorter.read(90, 100).items() <= rows_of(*range(90, 100)).items()
    shorter.write(rows_of(100))
    assert shorter.read(100, 101) == rows_of(100)


def test_no_file_at_all_is_what_garbage_is(path: Path, ring: Ring) -> None:
    path.write_bytes(b"\xff" * 1000)
    assert ring.read(0, ROWS) == {}
