"""The page of checks says what the checks say."""

from __future__ import annotations

import pytest

from tests.doctor.page import PAGE, written


@pytest.mark.wording
def test_the_page_is_as_the_tests_write_it():
    assert PAGE.read_text() == written(), "run: python -m tests.doctor.page"
