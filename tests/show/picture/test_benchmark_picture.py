"""Benchmark picture: each operation has a line and a name, and the line rate is a reference."""

from __future__ import annotations

import io

import msgspec
import pytest
from PIL import Image

from jupyter_mntrain.show.picture.benchmark_picture import BenchmarkPainter, benchmark_picture
from jupyter_mntrain.show.picture.theme import SCALE, THEMES, WIDTH_PX
from tests.hostile import HOSTILE, LONG, assert_safe
from tests.metrics.benchmark.reports import PAYLOAD, lines, nodes, report


def painted(made) -> BenchmarkPainter:
    painter = BenchmarkPainter()
    painter.paint(made)
    return painter


def words(painter: BenchmarkPainter) -> list[str]:
    return [text.get_text() for text in painter.canvas.figure.texts]


@pytest.mark.parametrize("theme", THEMES)
def test_it_is_as_wide_as_the_other_pictures(theme):
    image = Image.open(io.BytesIO(benchmark_picture(report(lines(), nodes()), theme=theme)))
    assert image.width == WIDTH_PX * SCALE


def test_each_operation_and_the_line_rate_are_drawn_and_named():
    painter = painted(report(lines(3), nodes(3)))
    said = words(painter)
    assert {"send and receive", "all-reduce", "all-gather", "line rate"} <= {*said}
    (axes,) = painter.canvas.figure.axes
    assert len(axes.lines) == 4
    assert [*axes.lines[-1].get_ydata()] == pytest.approx([PAYLOAD, PAYLOAD])
    low, high = axes.get_ylim()
    for line in axes.lines:
        assert all(low <= float(rate) <= high for rate in line.get_ydata())
    assert any("Mbit/s" in word for word in said)


def test_without_a_line_rate_there_is_no_reference():
    said = words(painted(report(lines(), nodes(capacity=None))))
    assert "line rate" not in said
    assert "all-reduce" in said


def test_a_report_of_one_size_or_none_is_drawn():
    made = report(lines(), nodes())
    one = msgspec.structs.replace(made, sizes=made.of("send")[:1])
    assert painted(one).canvas.png()
    assert painted(msgspec.structs.replace(made, sizes=())).canvas.png()


@pytest.mark.parametrize("poison", [HOSTILE, LONG], ids=["hostile", "long"])
def test_names_of_others_are_one_safe_line(poison):
    made = report(lines(), nodes())
    ranks = tuple(msgspec.structs.replace(one, node=poison) for one in made.ranks)
    painter = painted(msgspec.structs.replace(made, ranks=ranks))
    assert_safe(" ".join(words(painter)))
