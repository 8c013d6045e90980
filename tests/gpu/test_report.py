"""The report is written for a card, too, and says who else used it."""

from __future__ import annotations

import pytest

from tests.gpu.facts import own_facts
from tests.gpu.report import page
from tests.standin.cards import Cards, install


def test_a_page_names_driver_and_whoever_else_uses_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, Cards(pids=(4242,)))
    facts = own_facts()
    text = page(facts, [], title="a report")
    assert "driver        570.1\n" in text
    assert "in use        times are not to be trusted: pids 4242\n" in text


def test_a_card_of_ones_own_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards(pids=()))
    assert "in use" not in page(own_facts(), [], title="a report")
