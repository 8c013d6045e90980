"""Secrets of a job: no surface shows them, and the job runs with them, and again."""

from __future__ import annotations

import json

import msgspec
import pytest

from jupyter_mntrain.metrics.entry_builder import job_entry
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec
from tests.standin.job_handle import StandInJob

QUIET, NAMED, FORMED = "only-for-the-ranks", "also-not-shown", "hf_" + "aBcDeFgHiJ" * 3
HERE = {"MY_VALUE": QUIET, "HF_TOKEN": NAMED}
OPTIONS = ("--env", "MY_VALUE", "--env", "HF_TOKEN", "--env", f"ORDINARY={FORMED}", "--env", "A=1")


@pytest.fixture
def asked(do, cluster, recipe):
    """The spec of a launch with secrets."""
    do("launch", "r.toml", "--detach", *OPTIONS, directory=recipe, environment=HERE)
    (spec,) = cluster.launches
    return spec


@pytest.fixture
def known(asked, cluster) -> StandInJob:
    """The job, as its nodes know it."""
    (job,) = cluster._jobs.values()
    entry = (*asked.entry, "--password", NAMED)
    view = msgspec.structs.replace(job.view(), spec=msgspec.structs.replace(asked, entry=entry))
    job.view = lambda: view
    return job


def test_a_name_alone_takes_the_value_from_the_environment(asked: JobSpec):
    assert asked.environment == {**HERE, "ORDINARY": FORMED, "A": "1"}
    assert asked.from_environment == ("MY_VALUE", "HF_TOKEN")


def test_what_is_not_set_is_said_before_anything_starts(do, cluster, recipe):
    with pytest.raises(SpecError, match="HF_TOKEN") as error:
        do("launch", "r.toml", "--env", "HF_TOKEN", directory=recipe, environment={})
    assert error.value.fix
    assert cluster.launches == []


def test_a_value_that_is_given_wins(do, cluster, recipe):
    words = ("--env", "HF_TOKEN", "--env", "HF_TOKEN=given")
    do("launch", "r.toml", "--detach", *words, directory=recipe, environment=HERE)
    (spec,) = cluster.launches
    assert (spec.environment, spec.from_environment) == ({"HF_TOKEN": "given"}, ())


def test_nothing_shows_them(do, known, recipe, text):
    rerun = ("launch", known.id, "--detach")
    dry = ("launch", "--dry-run", "r.toml", *OPTIONS)
    export = ("export", known.id)
    others = (("status", known.id), ("jobs",), ("attach", known.id), ("nodes",), rerun)
    for words in (dry, export, *others):
        outcome = do(*words, directory=recipe, environment=HERE)
        said = text(outcome.renderable) + json.dumps(outcome.data)
        for secret in (QUIET, NAMED, FORMED):
            assert secret not in said, words
    entry = msgspec.json.encode(job_entry(known.view())).decode()
    assert NAMED not in entry
    dry_run = do(*dry, directory=recipe, environment=HERE)
    assert "***" in text(dry_run.renderable)
    assert dry_run.data["spec"]["environment"] == {
        **dict.fromkeys((*HERE, "ORDINARY"), "***"),
        "A": "1",
    }


def test_a_job_runs_again_with_them_and_its_file_where_they_are_set(do, known, cluster, recipe):
    view = known.view()
    plain = msgspec.structs.replace(view.spec, entry=view.spec.entry[:-2])
    known.view = lambda: msgspec.structs.replace(view, spec=plain)
    do("launch", known.id, "--detach", directory=recipe, environment={})
    assert cluster.launches[-1] == plain, "its nodes know them"
    do("export", known.id, "--output", "kept.toml", directory=recipe)
    with pytest.raises(SpecError, match="ORDINARY"):
        do("launch", "kept.toml", "--detach", directory=recipe, environment=HERE)
    here = {**HERE, "ORDINARY": FORMED}
    do("launch", "kept.toml", "--detach", directory=recipe, environment=here)
    again = cluster.launches[-1]
    assert again.environment == plain.environment
    assert set(again.from_environment) == set(here)
