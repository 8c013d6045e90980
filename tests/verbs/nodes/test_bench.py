"""``bench``: its tables in 80 columns, its picture, exit codes, and all of it for programs."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from PIL import Image

from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.benchmark import Transport
from tests.metrics.benchmark.reports import lines, nodes, report
from tests.standin.screen import Paper
from tests.wording import says

NODES = ("wopr", "muthur")
IB = Transport(network="IB", ways=("NET/IB/GDRDMA", "P2P/CUMEM"), rails=("mlx5_0:1", "mlx5_1:1"))


def test_what_was_reached_fits_eighty_columns(do, text, cluster):
    outcome = do("bench", *NODES)
    shown = text(outcome.renderable, 80)
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("all-reduce", "send and receive", "all-gather", "64 MiB", "64 KiB", "Gloo", "TCP"):
        assert word in shown
    assert says("Line rate: 950", shown)
    assert outcome.exit_code == 0
    (spec,) = cluster.benchmark.specs
    assert [one.node for one in spec.participants] == [*NODES]


def test_the_doctor_is_asked_first_unless_somebody_knows_better(do, cluster):
    do("bench", *NODES)
    assert cluster.benchmark.unchecked == 0
    do("bench", *NODES, "--skip-doctor")
    assert cluster.benchmark.unchecked == 1


def test_what_is_slow_is_named_with_a_fix_and_fails(do, text, cluster):
    cluster.benchmark.report = report(lines(4, slow={(0, 2): 0.1}), nodes(4))
    outcome = do("bench")
    shown = text(outcome.renderable, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert says("a → hal reaches", " ".join(shown.split()))
    assert says("Fix: look at the cable", " ".join(shown.split()))
    assert outcome.exit_code == 1


def test_the_transport_is_said_as_nccl_reports_it(do, text, cluster):
    cluster.benchmark.report = report(lines(transport=IB), nodes(ports=2))
    shown = text(do("bench").renderable, 80)
    assert "NCCL over NET/IB/GDRDMA, P2P/CUMEM (mlx5_0:1, mlx5_1:1)" in " ".join(shown.split())


def test_programs_get_the_whole_report(do):
    data = json.loads(msgspec.json.encode(do("bench", *NODES, "--json").data))
    assert {one["operation"] for one in data["sizes"]} == {"send", "all_reduce", "all_gather"}
    assert data["line_bytes_per_s"] > 0
    assert len(data["pairs"]) == 2


def test_a_benchmark_that_failed_says_why_and_where_its_log_is(do, text, cluster):
    cluster.benchmark.report = msgspec.structs.replace(
        report([], nodes()), failure=Problem(kind=Kind.LINK_DOWN, cause="no route", node="hal")
    )
    outcome = do("bench")
    assert outcome.exit_code == 1
    assert says("benchmark failed: hal: no route", text(outcome.renderable))
    assert says("logs j-1", text(outcome.renderable))


def test_the_picture_is_written_and_shown_where_pictures_are(do, tmp_path):
    outcome = do("bench", "-o", "bench.png", directory=tmp_path)
    assert outcome.picture is None
    assert Image.open(io.BytesIO((tmp_path / "bench.png").read_bytes())).width > 0
    png = do("bench", screen=Paper(in_background=True)).picture
    assert Image.open(io.BytesIO(png)).width > 0


@pytest.mark.parametrize("size", ["1 B", "1 TiB", "much"])
def test_a_message_has_a_size(do, size):
    with pytest.raises(SpecError):
        do("bench", "--largest", size)


def test_one_rank_is_refused_and_so_is_a_file_of_another_kind(do, tmp_path):
    for words in (("wopr",), ("-o", "bench.jpg")):
        with pytest.raises(MntrainError):
            do("bench", *words, directory=tmp_path)


def test_the_size_is_passed_on(do, cluster):
    do("bench", "--largest", "1 MiB", "--python", "conda:lm")
    (spec,) = cluster.benchmark.specs
    assert spec.entry[-2:] == ("--largest", str(1 << 20))
    assert spec.python == "conda:lm"
