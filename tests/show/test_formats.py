from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.log_follower import LogFollower

MEASURED = Capacity(bytes_per_s=1.25e8, source="measured", time_s=100.0, condition="alone")
STARVED = Capacity(bytes_per_s=1.375e8, source="measured", time_s=200.0, condition="short of CPU")
GIVEN = Capacity(bytes_per_s=1.25e8, source="given")


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (formats.count(1857.4), "1,857"),
        (formats.count(None), "n/a"),
        (formats.short_count(63366), "63.4 k"),
        (formats.short_count(10_000), "10 k"),
        (formats.short_count(0), "0"),
        (formats.between(12.4, 15.2), "12 to 15 s"),
        (formats.between(720, 899), "12 to 15 min"),
        (formats.between(761, 799), "about 13 min"),
        (formats.between(4400, 8000), "1.2 to 2.2 h"),
        (formats.between(1e5, 2e5), "1.2 to 2.3 d"),
        (formats.percent(0.4093), "40.9 %"),
        (formats.percent(0.0), "0.0 %"),
        (formats.percent(0.0004), "< 0.1 %"),
        (formats.percent(None), "n/a"),
        (formats.seconds(35.31), "35.3 s"),
        (formats.seconds(0.4021), "402 ms"),
        (formats.loss(0.8719), "0.872"),
        (formats.loss(1e25), "1.00e+25"),
        (formats.loss(-1e300), "-1.00e+300"),
        (formats.duration(14640), "4 h 04 min"),
        (formats.duration(65), "1 min 05 s"),
        (formats.duration(-0.3), "0 s"),
        (formats.duration(90000), "1 d 01 h"),
        (formats.latency(0.025), "25 ms"),
        (formats.latency(0.0004), "0.4 ms"),
        (formats.latency(0.0000254), "25 µs"),
        (formats.latency(None), "n/a"),
        (formats.bit_rate(941e6 / 8), "941 Mbit/s"),
        (formats.bit_rate(9.41e9 / 8), "9.41 Gbit/s"),
        (formats.bit_rate(1e9 / 8), "1 Gbit/s"),
        (formats.bit_rate(10), "80 bit/s"),
        (formats.bit_rate(None), "n/a"),
        (formats.memory(23.7 * 2**30), "23.7 GiB"),
        (formats.memory(573 * 2**20), "573 MiB"),
        (formats.capacity(None), "not measured"),
        (formats.age(59.4), "59 s"),
        (formats.age(3599), "59 min"),
        (formats.age(86_400), "1 day"),
        (formats.age(3 * 86_400 + 5), "3 days"),
        (formats.capacity(MEASURED), "1 Gbit/s, measured"),
        (formats.capacity(MEASURED, now_s=10_900), "1 Gbit/s, measured 3 h ago"),
        (
            formats.capacity(replace(MEASURED, condition="beside a job"), now_s=112),
            "1 Gbit/s, measured 12 s ago, beside a job",
        ),
        (formats.capacity(STARVED), "1.1 Gbit/s, measured while short of CPU"),
        (formats.capacity(GIVEN), "1 Gbit/s, as given"),
        (formats.capacity(replace(GIVEN, is_doubtful=True)), "1 Gbit/s, as given, slower now"),
        (formats.capacity(MEASURED, None, GIVEN), "1 Gbit/s, as given or measured"),
        (
            formats.capacity(STARVED, MEASURED, now_s=220),
            "1 to 1.1 Gbit/s, measured up to 2 min ago, some while short of CPU",
        ),
        (
            formats.capacity(replace(STARVED, bytes_per_s=1e8), STARVED, now_s=260),
            "800 Mbit/s to 1.1 Gbit/s, measured 1 min ago, while short of CPU",
        ),
        (
            formats.capacity(replace(MEASURED, is_exceeded=True), now_s=112),
            "1 Gbit/s, best seen, more than measured 12 s ago",
        ),
        (
            formats.capacity(replace(GIVEN, is_exceeded=True)),
            "1 Gbit/s, best seen, more than given",
        ),
    ],
)
def test_numbers_read_as_in_the_design_notes(spelled, expected):
    assert spelled.replace("\u00a0", " ").replace("\u202f", " ") == expected


def test_the_end_of_a_job_has_a_day_unless_it_is_today():
    evening = time.mktime((2026, 11, 24, 20, 0, 0, 0, 0, -1))

    def numbers(left_s, **ends):
        return JobNumbers(step=1, remaining_s=left_s, **ends)

    assert formats.finish(evening, numbers(3600)).startswith("done at 21:00, in ")
    assert formats.finish(evening, numbers(5 * 3600)).startswith("done on 25 Nov at 01:00, in ")


def test_units_never_break_from_their_number():
    assert " " not in formats.percent(0.5) + formats.duration(14640)[:3] + formats.bit_rate(1e8)


def test_a_tail_that_moves_on_gives_each_line_once():
    from jupyter_mntrain.cluster import LogLine

    def lines(*numbers):
        return [LogLine(node="a", rank=0, text=f"line {number}") for number in numbers]

    follower = LogFollower()
    assert follower.news(lines(1, 2, 3)) == lines(1, 2, 3)
    assert follower.news(lines(2, 3, 4, 5)) == lines(4, 5)
    assert follower.news(lines(4, 5)) == []
    assert follower.news(lines(9, 10)) == lines(9, 10)
