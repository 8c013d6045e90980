"""What a cell writes, as it is kept for whoever asks again."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.records.session import Done, Lost, Text
from jupyter_mntrain.session import output
from jupyter_mntrain.session.output import CellOutput, pieces


def ended(number: int) -> Done:
    return Done(rank=2, number=number, end="ok", took_s=1.0)


def test_events_are_numbered_and_can_be_asked_for_again() -> None:
    cell = CellOutput(2, 1)
    cell.text("a", is_error=False)
    cell.text("b", is_error=True)
    assert cell.after(0, 0.0) == ([Text(2, 1, "a"), Text(2, 2, "b", is_error=True)], False)
    assert cell.after(1, 0.0) == ([Text(2, 2, "b", is_error=True)], False)
    cell.add(ended, 0)
    assert cell.after(2, 0.0) == ([ended(3)], True)
    cell.text("of a thread that outlives it", is_error=False)
    assert cell.after(3, 0.0) == ([], True)


def test_of_too_much_the_oldest_is_dropped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "EVENT_BYTES", 0)
    monkeypatch.setattr(output, "KEPT_BYTES", 10)
    cell = CellOutput(0, 1)
    for text in ("four", "more", "last"):
        cell.text(text, is_error=False)
    events, _ = cell.after(0, 0.0)
    assert events == [Lost(0, 1, 4), Text(0, 2, "more"), Text(0, 3, "last")]
    assert cell.after(1, 0.0)[0] == [Text(0, 2, "more"), Text(0, 3, "last")], "it has that one"


def test_what_events_take_beside_their_text_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "KEPT_BYTES", 1000)
    cell = CellOutput(0, 1)
    for _ in range(50):
        cell.text("é", is_error=False)
    lost, *kept = cell.after(0, 0.0)[0]
    assert isinstance(lost, Lost)
    assert lost.size_bytes == 2 * (50 - len(kept)), "in bytes, not in characters"
    assert len(kept) * output.EVENT_BYTES <= 1000


def test_texts_of_one_stream_are_joined() -> None:
    events = [Text(0, 1, "a"), Text(0, 2, "b"), Text(0, 3, "c", is_error=True), ended(4)]
    assert [*pieces(events)] == [
        Text(0, 2, "ab"),
        Text(0, 3, "c", is_error=True),
        ended(4),
    ]
