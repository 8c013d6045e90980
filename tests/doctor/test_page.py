"""The page of checks says what the checks say."""

from __future__ import annotations

import pytest

from jupyter_mntrain.doctor.every import EVERY
from tests.doctor.before_launch import BEFORE_LAUNCH, LATER
from tests.doctor.checklists import CHECKLISTS, shown
from tests.doctor.page import PAGE, written
from tests.doctor.subjects import SUBJECTS
from tests.faults import table
from tests.rows import has_rows_for, same_rows


@pytest.mark.wording
def test_the_page_is_as_the_tests_write_it():
    assert PAGE.read_text() == written(), "run: python -m tests.doctor.page"


def test_the_checklists_name_checks_that_there_are():
    items = [item for each in CHECKLISTS.values() for item in each]
    named = {check for item in items for check in item.checks}
    no_check = "tests/doctor/checklists.py names '{}', which EVERY of doctor/every.py has not"
    has_rows_for(named, {check.id for check in EVERY}, no_check)
    assert all(shown(item) if item.checks else item.besides for item in items)


def test_of_every_case_of_the_fault_tests_it_is_said_whether_the_doctor_can_know_it():
    cases = {row.fault for row in table.rows_of(table.PAGE.read_text())}
    known = [item.point for item in BEFORE_LAUNCH] + list(LATER)
    same_rows(
        cases,
        known,
        "docs/faults.md has case '{}', which the doctor says nothing of: add it to BEFORE_LAUNCH of"
        " tests/doctor/before_launch.py with the checks that know it, or to LATER",
        "tests/doctor/before_launch.py has '{}', and docs/faults.md has no case of that name",
    )
    assert len({*known}) == len(known), "a case stands twice in tests/doctor/before_launch.py"
    assert all(shown(item) for item in BEFORE_LAUNCH)


def test_the_points_that_are_examined_name_every_check():
    named = {check for item in SUBJECTS for check in item.checks}
    same_rows(
        {check.id for check in EVERY},
        named,
        "check '{}' belongs to no point: name it in an Item of tests/doctor/subjects.py",
        "tests/doctor/subjects.py names '{}', which EVERY of doctor/every.py has not",
    )
    assert all(item.checks for item in SUBJECTS)
