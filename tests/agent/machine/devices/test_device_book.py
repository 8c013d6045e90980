"""Device book: what is kept of measurements, and how long it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement
from tests.standin.devices import CPU, device
from tests.standin.nodes import gpu

CARD = {"gpu": 0, "uuid": "GPU-0", "device": "RTX"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices.json"


def valid(book: DeviceBook, **changes: object) -> tuple[DeviceMeasurement, ...]:
    now = {"cpu": CPU, "cores": 4.0, "gpus": [gpu(0)], "torch": "2.13.0"} | changes
    return book.valid(**now)  # type: ignore[arg-type]


def test_each_device_dtype_and_number_of_ranks_is_kept_apart_and_survives_a_restart(
    path: Path,
) -> None:
    kept = (device(), device("bfloat16"), device(ranks=2), device(**CARD))
    for one in kept:
        DeviceBook(path).keep(one)
    assert valid(DeviceBook(path)) == kept
    book = DeviceBook(path)
    book.keep(device(flops_per_s=9e10, time_s=6.0))
    assert valid(book)[0] == device(flops_per_s=9e10, time_s=6.0), "the newest"


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"torch": "2.14.0"}, ["conda"]),
        ({"torch": None}, ["conda"]),
        ({"cores": 2.0}, ["card"]),
        ({"cpu": "another"}, ["card"]),
        ({"gpus": [gpu(0, uuid="GPU-9")]}, ["cpu", "conda"]),
    ],
)
def test_a_figure_expires_with_the_device_the_torch_or_the_limit_of_cpu_time(
    path: Path, change: dict[str, object], left: list[str]
) -> None:
    book = DeviceBook(path)
    kept = {"cpu": device(), "card": device(**CARD), "conda": device(python="/conda/python")}
    for one in kept.values():
        book.keep(one)
    assert valid(book) == tuple(kept.values())
    assert valid(book, **change) == tuple(kept[name] for name in left)
    assert valid(book) == tuple(kept.values()), "all is as it was when it was measured"


def test_a_card_that_has_another_index_now_is_known_by_its_uuid(path: Path) -> None:
    book = DeviceBook(path)
    book.keep(device(**CARD))
    (found,) = valid(book, gpus=[gpu(3, uuid="GPU-0")])
    assert found.gpu == 3


def test_a_disturbed_figure_is_a_lower_bound_of_the_same_device(path: Path) -> None:
    book = DeviceBook(path)
    slow = device(flops_per_s=5e10, disturbed="alongside other processes", time_s=6.0)
    book.keep(slow)
    assert valid(book) == (slow,), "better than nothing"
    book.keep(device())
    book.keep(slow)
    assert valid(book) == (device(),), "no reason to believe that it is slower now"
    book.keep(slow_now := device(flops_per_s=5e10, disturbed="beside a job", cpus=2.0))
    assert valid(book, cores=2.0) == (slow_now,), "the other one held with more cores"


def test_what_a_job_achieved_stands_beside_what_was_measured(path: Path) -> None:
    book, rate = DeviceBook(path), AchievedRate(JobId("j-1"), 6e10, 7.0)
    book.keep_achieved(device(), rate)
    assert valid(book) == (), "nothing was measured"
    for one in (device(), device(ranks=2), device(**CARD)):
        book.keep(one)
    book.keep_achieved(device(ranks=2), rate)
    assert [one.achieved for one in valid(book)] == [None, rate, None]
    book.keep(device(ranks=2, time_s=8.0))
    assert valid(book)[1].achieved == rate, "also after it was measured again"
    book.keep(device(ranks=2, torch="2.14.0"))
    assert valid(book, torch="2.14.0")[0].achieved is None, "it was another torch's"


def test_a_damaged_file_counts_as_nothing_measured(path: Path) -> None:
    path.write_text("{")
    book = DeviceBook(path)
    assert valid(book) == ()
    book.keep(device())
    assert valid(DeviceBook(path)) == (device(),)
