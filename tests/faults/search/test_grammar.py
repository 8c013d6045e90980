"""Grammar of faults: shares, determinism, variety."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec

from tests.faults.search.case import EARLY, STRATA, Opening
from tests.faults.search.grammar import MECHANISMS, draw, draw_sequence, of_stratum, shares
from tests.faults.search.mechanisms.mechanism import PHASES

SEEDS = range(1, 1001)
CASES = [draw(seed) for seed in SEEDS]
SEQUENCES = [draw_sequence(seed) for seed in SEEDS]


def test_every_stratum_has_its_share_of_any_row_of_seeds():
    for first in (0, 300, 601):
        found = shares(CASES[first : first + 300])
        assert all(found[stratum] >= 0.15 for stratum in STRATA), found


def test_a_quarter_is_hard_and_some_have_two_faults():
    assert shares(CASES)["hard"] >= 0.25
    paired = [case for case in CASES if len(case.mechanisms) == 2]
    assert 0.05 <= len(paired) / len(CASES) <= 0.3
    for case in paired:
        first, second = (MECHANISMS[name] for name in case.mechanisms)
        assert first.distracts
        assert second.pairs
        assert case.moment == "steps"


def test_a_seed_is_the_same_case_in_another_process():
    code = "from tests.faults.search.grammar import draw; print([draw(s).title for s in range(50)])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == str([draw(seed).title for seed in range(50)])
    again = [draw(seed) for seed in range(1, 100)]
    assert again == CASES[:99]


def test_a_sequence_is_two_or_three_faults_of_one_job_that_goes_on_after_all_but_the_last():
    assert [draw_sequence(seed) for seed in SEEDS] == SEQUENCES
    assert {len(one.cases) for one in SEQUENCES} == {2, 3}
    assert {one.opening for one in SEQUENCES} == {*get_args(Opening)}
    for one in SEQUENCES:
        assert len({case.layout for case in one.cases}) == 1
        assert len(one.pauses_s) == len(one.cases) - 1
        *mended, _ = [MECHANISMS[case.mechanisms[-1]] for case in one.cases]
        assert not any(each.spoils for each in mended), one.title
    last = {one.cases[-1].mechanisms[-1] for one in SEQUENCES}
    assert len(last) > len({one.cases[0].mechanisms[-1] for one in SEQUENCES}) > 15


def test_another_stratum_may_be_asked_for():
    assert {draw(seed, "disk").stratum for seed in range(20)} == {"disk"}


def test_every_mechanism_is_drawn_and_no_two_share_a_name():
    drawn = {name for seed in range(5000) for name in draw(seed).mechanisms}
    assert drawn == set(MECHANISMS)
    assert sum(len(of_stratum(one)) for one in STRATA) == len(MECHANISMS)


def test_no_part_of_a_mechanism_is_forgotten():
    for path in (Path(__file__).parent / "mechanisms").glob("*.py"):
        text = path.read_text()
        names = re.findall(r"^def (_\w+)", text, re.MULTILINE)
        assert [name for name in names if len(re.findall(rf"\b{name}\b", text)) < 2] == []


def test_unseen_seeds_are_mostly_cases_of_their_own():
    later = [draw(seed) for seed in range(2001, 2301)]
    essence = lambda case: msgspec.json.encode((case.title, case.parameters))  # noqa: E731
    known = {essence(case) for case in CASES}
    assert sum(essence(case) not in known for case in later) >= 150


def test_cases_can_be_played_and_say_what_is_true():
    for case in CASES:
        truth = case.truth
        assert truth.accepts or truth.is_harmless, case.title
        assert case.guilty in case.layout.names
        assert case.rank in case.layout.ranks(case.guilty)
        for accept in truth.accepts:
            assert accept.kinds, f"a right answer exists: {case.title}"
            assert accept.nodes <= {*case.layout.names, "node3"}
            assert accept.ranks <= set(range(case.layout.world_size))


def test_what_ranks_run_is_python():
    for case in CASES:
        for parameters in case.parameters:
            if "code" in parameters:
                compiles(parameters["code"], case.mechanisms)


def compiles(code: str, mechanisms: tuple[str, ...]) -> None:
    if "a syntax error" not in mechanisms:
        compile(code, "own_code.py", "exec")


def test_a_phase_exists_for_every_moment():
    assert set(PHASES) >= EARLY
    assert {moment for one in MECHANISMS.values() for moment in one.moments} <= set(PHASES)
