"""A job as a file, and a job again: what was given besides wins, and nothing is overwritten."""

from __future__ import annotations

import pytest

from jupyter_mntrain.launch.spec_file import read_spec, write_spec
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from jupyter_mntrain.model.job import JobSpec, Participant

SPEC = JobSpec(
    entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
    participants=(Participant(node="wopr"), Participant(node="hal", interface="eno1")),
    name="again",
    files={"recipe.toml": '[model]\npreset = "llama-tiny"\n'},
    environment={"LEVEL": "1", "HF_TOKEN": "hush"},
    port=29500,
)


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(write_spec(SPEC))
    return path


def test_a_job_file_is_launched_as_it_is(do, cluster, job_file, tmp_path):
    outcome = do("launch", job_file.name, directory=tmp_path)
    (spec,) = cluster.launches
    assert (spec.name, spec.entry, spec.files) == (SPEC.name, SPEC.entry, SPEC.files)
    assert spec.participants == SPEC.participants
    assert spec.environment == {"LEVEL": "1"}
    assert outcome.exit_code == 0


def test_what_is_given_besides_wins(do, cluster, job_file, tmp_path):
    words = ["--member", "muthur:1", "--member", "wopr:1", "--name", "other", "--port", "30000"]
    words += ["--env", "LEVEL=2", "--set", "train.steps=3", "--head", "wopr"]
    do("launch", job_file.name, *words, directory=tmp_path)
    (spec,) = cluster.launches
    assert [one.node for one in spec.participants] == ["wopr", "muthur"]
    assert (spec.name, spec.port, spec.environment) == ("other", 30000, {"LEVEL": "2"})
    assert spec.entry == (*SPEC.entry, "--set", "train.steps=3")


def test_a_dry_run_of_a_job_file_starts_nothing(do, cluster, job_file, tmp_path):
    outcome = do("dry-run", job_file.name, directory=tmp_path)
    assert outcome.data["spec"]["name"] == "again"
    assert cluster.launches == []


def test_a_job_runs_again_by_its_id(do, cluster):
    known = cluster.jobs()[0]
    do("launch", known.job_id)
    assert cluster.launches == [known.spec]


def test_a_job_nobody_knows_is_named(do):
    with pytest.raises(JobNotFoundError):
        do("launch", "j-00000001")


def test_a_file_wins_over_a_job_of_that_name(do, cluster, tmp_path):
    known = cluster.jobs()[0]
    (tmp_path / known.job_id).write_text("print(1)")
    with pytest.raises(SpecError, match="neither a recipe nor a script"):
        do("launch", known.job_id, directory=tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mntrain_job = 99", "upgrade"),
        ("mntrain_job = 1\nentri = ['x']", "entri"),
    ],
)
def test_a_job_file_that_cannot_be_read_says_why(do, cluster, tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(SpecError, match=words):
        do("launch", "bad.toml", directory=tmp_path)
    assert cluster.launches == []


def test_recipe_fields_of_a_script_are_refused(do, tmp_path):
    script = JobSpec(entry=("a.py",), participants=SPEC.participants, files={"a.py": "1"})
    (tmp_path / "script.toml").write_text(write_spec(script))
    with pytest.raises(SpecError, match="has no recipe fields"):
        do("launch", "script.toml", "--set", "train.steps=3", directory=tmp_path)


# Exporting


def test_an_exported_job_is_the_job(do, cluster, tmp_path):
    known = cluster.jobs()[0]
    outcome = do("export", known.job_id, "out.toml", directory=tmp_path)
    assert read_spec((tmp_path / "out.toml").read_text()) == known.spec
    assert outcome.data["file"] == str(tmp_path / "out.toml")
    do("launch", "out.toml", directory=tmp_path)
    assert cluster.launches == [known.spec]


def test_without_a_file_it_is_shown(do, cluster, text):
    outcome = do("export", cluster.jobs()[0].job_id)
    assert "mntrain_job = 1" in text(outcome.renderable)


def test_nothing_is_overwritten_unasked(do, cluster, tmp_path):
    (tmp_path / "out.toml").write_text("mine")
    known = cluster.jobs()[0].job_id
    with pytest.raises(SpecError, match="there already"):
        do("export", known, "out.toml", directory=tmp_path)
    assert (tmp_path / "out.toml").read_text() == "mine"
    do("export", known, "out.toml", "--force", directory=tmp_path)
    assert "mntrain_job" in (tmp_path / "out.toml").read_text()


def test_a_place_that_cannot_be_written_is_named(do, cluster, tmp_path):
    with pytest.raises(SpecError, match="cannot be written"):
        do("export", cluster.jobs()[0].job_id, "no/such/place.toml", directory=tmp_path)
