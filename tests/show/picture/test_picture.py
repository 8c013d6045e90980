"""Picture: nothing overlaps or is cut off, and all known numbers are shown."""

from __future__ import annotations

import functools
import io
import itertools
import subprocess
import sys

import pytest
from msgspec.structs import replace
from PIL import Image

from jupyter_mntrain.cluster import JobHistory, RankSeries
from jupyter_mntrain.metrics.downsampled.prefix import Prefix
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show.picture import WIDTH_PX, Picture
from jupyter_mntrain.show.picture.spread import spread
from jupyter_mntrain.show.picture.theme import SCALE, THEMES
from tests.standin.jobs import taken
from tests.standin.training import LOST_LINK, SCENES, sample_job
from tests.wording import says

pytestmark = pytest.mark.slow

LARGEST_BYTES = 100_000
"""A frame crosses the page's connection every few seconds (research §2)."""


@functools.cache  # drawing is what takes the time here
def drawn(name: str, **settings) -> tuple[Picture, bytes]:
    sample = SCENES[name]()
    picture = Picture(program="%mntrain", **settings)
    return picture, picture.draw(sample.series, sample.history.view, now_s=sample.now_s)


def words(picture: Picture) -> str:
    return "\n".join(text.get_text() for text in picture.painter.figure.texts)


def from_the_top(picture: Picture):
    """The texts, in the order of their height; of equal ones, in the order they were written."""
    return sorted(picture.painter.figure.texts, key=lambda text: text.get_position()[1])


def boxes(picture: Picture):
    """Every text on the picture with the pixels it takes, axis labels too."""
    figure = picture.painter.figure
    renderer = figure.canvas.get_renderer()
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [label for label in axes.get_yticklabels() if label.get_text()]
    low_limits = {id(label): axes.bbox for axes in figure.axes for label in axes.get_yticklabels()}
    for text in texts:
        if not text.get_visible() or not text.get_text().strip():
            continue
        box = text.get_window_extent(renderer)
        axes_box = low_limits.get(id(text))
        if axes_box is not None and not axes_box.y0 - 1 <= (box.y0 + box.y1) / 2 <= axes_box.y1 + 1:
            continue  # a tick outside of the limits is not drawn
        yield text.get_text(), box


@pytest.mark.parametrize("name", list(SCENES))
def test_no_text_covers_another_or_leaves_the_picture(name):
    assert_tidy(drawn(name)[0])


def assert_tidy(picture: Picture) -> None:
    found = list(boxes(picture))
    assert found
    width, height = picture.painter.figure.bbox.max
    for text, box in found:
        assert box.x0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y0 >= -1, text
        assert box.y1 <= height + 1, text
    for (one, a), (other, b) in itertools.combinations(found, 2):
        overlap_x = min(a.x1, b.x1) - max(a.x0, b.x0)
        overlap_y = min(a.y1, b.y1) - max(a.y0, b.y0)
        # Boxes include room for accents: letters touch later than boxes.
        assert overlap_x <= 1 or overlap_y <= 0.35 * min(a.height, b.height), (one, other)


@pytest.mark.parametrize("name", list(SCENES))
def test_a_frame_is_small_and_sharp(name):
    _, png = drawn(name)
    assert len(png) < LARGEST_BYTES
    assert Image.open(io.BytesIO(png)).width == WIDTH_PX * SCALE


@pytest.mark.parametrize("name", ["two", "many", "failed"])
def test_a_frame_is_the_same_for_the_same_data(name):
    sample = SCENES[name]()
    picture, png = drawn(name)
    assert picture.draw(sample.series, sample.history.view, now_s=sample.now_s) == png


def test_frames_leave_no_artists_behind():
    sample = SCENES["one-step"]()
    picture = Picture(program="x")

    def artists() -> int:
        picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
        return len(picture.painter.figure.findobj())

    assert artists() == artists()


def test_the_background_is_transparent_unless_a_theme_is_named():
    _, png = drawn("two")
    assert Image.open(io.BytesIO(png)).convert("RGBA").getpixel((2, 2))[3] == 0
    for theme, color in (("light", (255, 255, 255)), ("dark", (17, 17, 17))):
        _, png = drawn("two", theme=theme)
        image = Image.open(io.BytesIO(png)).convert("RGBA")
        red, green, blue, alpha = image.getpixel((2, 2))
        assert alpha == 255
        # 256 colors for everything: white may come out as 254.
        assert all(
            abs(got - meant) <= 2 for got, meant in zip((red, green, blue), color, strict=True)
        )


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("theme", "backgrounds"),
    [("auto", ["#ffffff", "#111111"]), ("light", ["#ffffff"]), ("dark", ["#111111"])],
)
def test_colors_can_be_told_from_every_background_they_may_meet(theme, backgrounds):
    roles = THEMES[theme]
    for background in backgrounds:
        for color in (*roles.ranks, roles.bad, roles.fill, roles.wait, roles.axis):
            assert contrast(color, background) >= 3, (color, background)
        least = 4.1 if theme == "auto" else 4.5
        assert contrast(roles.text, background) >= least


def test_eight_ranks_are_told_apart_without_color():
    strokes = [THEMES["auto"].rank(number) for number in range(8)]
    assert len({(stroke.dash, stroke.marker) for stroke in strokes}) == 8


def test_running_shows_every_chart_and_its_last_values():
    said = words(drawn("two")[0])
    for word in ("Throughput, tok/s", "MFU", "Link wopr ⇄ muthur", "Computing", "Loss"):
        assert word in said
    for word in ("running", "samantha-7b", "step 60 of 80", "r0", "r1", "job", "→ muthur"):
        assert word in said
    assert "941\u00a0Mbit/s, measured" in said
    assert "payload of the ranks" in said


@pytest.mark.wording
def test_failed_says_node_and_cause_above_everything_else():
    picture, _ = drawn("failed")
    texts = from_the_top(picture)
    assert texts[0].get_text() == "✕"
    assert texts[1].get_text().startswith("muthur: rank 2: eno1 lost its link")
    assert texts[1].get_color() == THEMES["auto"].bad


@pytest.mark.wording
def test_warnings_stand_above_everything_else_and_are_wrapped():
    sample = SCENES["two"]()
    warnings = (
        Problem(kind=Kind.LOSS_NAN, cause="the loss became NaN at step 12", node="wopr"),
        Problem(kind=Kind.RANKS_NEVER_MET, cause="the ranks never met " * 9, fix="have them meet"),
    )
    summary = replace(sample.series.summary, warnings=warnings)
    picture = Picture(program="x")
    series = replace(sample.series, summary=summary)
    picture.draw(series, sample.history.view, now_s=sample.now_s)
    assert_tidy(picture)
    texts = [text.get_text() for text in from_the_top(picture)]
    assert texts[:2] == ["⚠", "wopr: the loss became NaN at step 12."]
    assert texts[2] == "⚠"
    assert texts.index("running") > 4, "the second warning takes several lines"


def test_a_long_cause_is_wrapped_not_cut():
    import msgspec

    problem = msgspec.structs.replace(
        LOST_LINK, cause="FileNotFoundError: " + "/data/long" * 25, node="b"
    )
    sample = sample_job({"a": 1, "b": 1}, state="failed", problem=problem)
    picture = Picture(program="x")
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    width = picture.painter.figure.bbox.x1
    assert all(box.x1 <= width for _, box in boxes(picture))
    assert words(picture).replace("\n", "").count("/data/long") >= 24


def test_starting_says_what_is_waited_for():
    said = words(drawn("starting")[0])
    assert "wopr, r0" in said
    assert "loading (pid 1000)" in said
    assert "Charts begin with the first step" in said


def test_without_a_capacity_it_shows_bits_and_says_why():
    said = words(drawn("no-capacity")[0])
    assert "Link wopr ⇄ muthur, Mbit/s" in said
    assert says("wopr's capacity is not measured, so no", said)
    assert says("%mntrain measure", said)
    assert says("the peak of cpu is not known", said)


def test_without_a_capacity_there_is_no_percentage():
    sample = sample_job({"wopr": 1, "muthur": 1}, capacity=None)
    assert all(link.utilization is None for link in sample.summary.links)


def test_many_ranks_are_a_band_and_the_slowest():
    said = words(drawn("many")[0])
    for word in ("min", "median", "max", "r37 slowest", "Busiest of 8 links"):
        assert word in said
    assert "r12" not in said


def test_the_time_axis_of_an_ended_job_ends_with_the_job_not_with_the_last_link_sample():
    sample = SCENES["three"]()
    link = sample.series.links[0]
    late = replace(link, time_s=(*link.time_s[:-1], link.time_s[-1] + 30))
    series = replace(sample.series, links=(late, *sample.series.links[1:]))
    picture = Picture(program="x")
    picture.draw(series, sample.history.view, now_s=sample.now_s + 3600)
    ended_s = max(part.ended_s for part in sample.history.view.parts)
    for axes in picture.painter.figure.axes:
        assert axes.get_xlim()[1] * 86_400 == pytest.approx(ended_s, abs=0.01)


def test_evaluations_are_a_second_line_of_the_loss_from_before_the_first_step():
    sample = SCENES["evaluated"]()
    picture, _ = drawn("evaluated")
    axes = picture.painter.figure.axes[-1]
    loss, evaluation = axes.lines
    told = next(iter(sample.history.ranks.values())).evaluations
    assert list(evaluation.get_ydata()) == pytest.approx([one.loss for one in told], rel=1e-4)
    assert evaluation.get_marker() == "o"
    assert axes.get_xlim()[0] <= evaluation.get_xdata()[0] < loss.get_xdata()[0]
    assert axes.get_ylim()[1] > told[0].loss
    said = words(picture)
    assert said.count("evaluation") == 2, "the label of the line, and the last one in the header"
    assert "evaluation" not in words(drawn("two")[0])


def test_below_the_charts_stands_what_the_model_wrote_last_to_each_prompt():
    picture, _ = drawn("samples")
    texts = from_the_top(picture)
    shown = [text.get_text() for text in texts]
    lines = shown[shown.index("Samples") :]
    assert lines[1:4] == [
        "Who are you?",
        "step 60",
        "I am Samantha, a helpful assistant. How can I help you today?",
    ]
    assert "the the the" not in shown, "what it wrote before the first step is not the newest"
    prompt, step, *written = lines[4:9]
    assert (prompt[-1], step, len(written), written[-1][-1]) == ("…", "step 60", 3, "…")
    assert lines[9].startswith("□□")
    assert not any(one in "".join(shown) for one in "\x1b\x07\u202e\ud800\U0001f9e0你")
    assert lines[-2:] == ["(empty)", ""], "it wrote nothing, and there is no note"
    bottom = min(axes.bbox.y0 for axes in picture.painter.figure.axes)
    assert texts[shown.index("Samples")].get_window_extent().y1 < bottom


def test_a_picture_without_samples_has_no_room_for_them():
    with_samples, without = (drawn(name)[0].painter.figure for name in ("samples", "evaluated"))
    assert "Samples" not in words(drawn("evaluated")[0])
    assert with_samples.bbox.height > without.bbox.height


def test_only_the_newest_prompts_of_a_script_that_always_asks_something_else_are_shown():
    wrote = {f"question {number}": f"answer {number}" for number in range(40)}
    sample = sample_job({"wopr": 1}, wrote=wrote)
    picture = Picture(program="x")
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    shown = [line for line in words(picture).splitlines() if line.startswith("question")]
    assert shown == [f"question {number}" for number in range(32, 40)]


def test_samples_are_shown_before_the_first_step():
    sample = sample_job({"wopr": 1}, steps=0, state="running", wrote={"Who are you?": "I"})
    picture = Picture(program="x")
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    assert "the the the" in words(picture)


def test_a_script_that_reports_nothing_but_tokens_still_has_a_throughput():
    import msgspec

    sample = SCENES["two"]()
    ranks = {}
    for rank, series in sample.history.ranks.items():
        start = msgspec.structs.replace(series.start, stages=(), peak_flops_per_s=None)
        steps = [
            msgspec.structs.replace(
                step, loss=None, compute_s=None, flops=None, sent_bytes={}, received_bytes={}
            )
            for step in series.steps
        ]
        ranks[rank] = RankSeries(start, Prefix(steps), None)
    history = JobHistory(view=sample.history.view, ranks=ranks, links={}, is_complete=False)
    picture = Picture(program="x")
    picture.draw(taken(history).whole(), history.view, now_s=sample.now_s)
    said = words(picture)
    assert "job" in said
    assert "n/a: no loss is reported" in said


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_labels_are_spread_in_order_and_within_bounds(count):
    wanted = [50.0 + 0.1 * number for number in range(count)]
    placed = spread(wanted, gap=14, low=0, high=96)
    assert placed == sorted(placed)
    assert min(placed) >= 0
    assert max(placed) <= 96
    gap = min(14, 96 / max(1, count - 1))
    assert all(b - a >= gap - 1e-6 for a, b in itertools.pairwise(placed))


def test_pyplot_is_never_imported():
    """It keeps global state that two threads corrupt."""
    code = (
        "import sys; sys.path.insert(0, '.');"
        "from tests.standin.training import SCENES;"
        "from jupyter_mntrain.show.picture import Picture;"
        "s = SCENES['two'](); Picture(program='x').draw(s.series, s.history.view, now_s=s.now_s);"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
