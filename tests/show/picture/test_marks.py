"""Marks: when warnings began, on every chart."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_mntrain.metrics.summary import EventMark
from jupyter_mntrain.show.picture import Picture
from tests.show.picture.test_picture import assert_tidy, words
from tests.standin.training import SCENES


def test_warnings_are_marked_on_every_chart_and_named_on_the_first():
    sample = SCENES["two"]()
    begin_s = sample.series.ranks[0].time_s[5]
    marks = (
        EventMark(time_s=begin_s, label="wopr r0 3.1x slower", end_s=begin_s + 2),
        EventMark(time_s=begin_s + 1e6, label="not on this axis"),
    )
    series = replace(sample.series, summary=replace(sample.series.summary, marks=marks))
    picture = Picture(program="x")
    picture.draw(series, sample.history.view, now_s=sample.now_s)
    assert_tidy(picture)
    assert words(picture).count("wopr r0 3.1x slower") == 1
    assert "not on this axis" not in words(picture)
    for axes in picture.painter.figure.axes:
        assert [line.get_linestyle() for line in axes.lines].count(":") == 1
        assert len(axes.patches) == 1
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    assert not any(axes.patches for axes in picture.painter.figure.axes)
