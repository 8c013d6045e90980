"""The page of checks says what the checks say."""

from __future__ import annotations

import pytest

from jupyter_mntrain.doctor.every import EVERY
from tests.doctor.checklists import CHECKLISTS
from tests.doctor.page import PAGE, written
from tests.doctor.subjects import SUBJECTS


@pytest.mark.wording
def test_the_page_is_as_the_tests_write_it():
    assert PAGE.read_text() == written(), "run: python -m tests.doctor.page"


def test_the_checklists_name_checks_that_there_are():
    named = {check for item in CHECKLISTS for check in item.checks}
    assert named <= {check.id for check in EVERY}
    assert all(item.checks or item.besides for item in CHECKLISTS)


def test_the_points_that_are_examined_name_every_check():
    named = {check for item in SUBJECTS for check in item.checks}
    assert named == {check.id for check in EVERY}
    assert all(item.checks for item in SUBJECTS)
