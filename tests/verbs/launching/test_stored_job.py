"""Stored jobs, launched again: from a file, from a cell, by id."""

from __future__ import annotations

import stat

import msgspec
import pytest

from jupyter_mntrain.launch.spec_file import read_spec, write_spec
from jupyter_mntrain.model.errors import JobNotFoundError, NodeError, SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.verbs.launching.foreign_job import remember_job_file
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.wording import says, wording

RECIPE = '[model]\npreset = "llama-tiny"\n'
SCRIPT_JOB = JobSpec(
    entry=("train.py", "--lr", "3"),
    participants=(Participant(node="wopr", interface="eno1"), Participant(node="muthur", nproc=2)),
    name="mine",
    files={"train.py": "learn = 1\n"},
    environment={"A": "1", "B": "2", "HF_TOKEN": "hf_abc"},
    torchrun_arguments=("--redirects=1",),
    port=29511,
    link_capacity_bytes_per_s=125e6,
)
RECIPE_JOB = JobSpec(
    entry=("-m", "jupyter_mntrain.train", "recipe.toml", "--set", "train.steps=3"),
    participants=SCRIPT_JOB.participants[:1],
    files={"recipe.toml": RECIPE},
)


@pytest.fixture
def keep(tmp_path):
    """A job file, as export would have written it."""

    def keep(spec: JobSpec, name: str = "job.toml") -> str:
        text = write_spec(spec, with_secrets=True)
        (tmp_path / name).write_text(text)
        remember_job_file(text)
        return name

    return keep


@pytest.fixture
def launched(do, cluster, tmp_path):
    def launched(*words: str, **changes) -> JobSpec:
        do("launch", *words, directory=tmp_path, **changes)
        return cluster.launches[-1]

    return launched


@pytest.fixture
def known(cluster) -> StandInJob:
    """A job of the cluster, with a spec of ours."""
    (job,) = cluster._jobs.values()
    view = msgspec.structs.replace(job.view(), spec=SCRIPT_JOB)
    job.view = lambda: view
    return job


@pytest.mark.parametrize("spec", [SCRIPT_JOB, RECIPE_JOB])
def test_a_job_file_is_launched_as_it_stands(launched, keep, spec):
    assert launched(keep(spec)) == spec


def test_a_job_is_launched_once_more_by_its_id_or_its_beginning(launched, known):
    assert launched(known.id) == SCRIPT_JOB
    assert launched(known.id[:5]) == SCRIPT_JOB


@pytest.fixture
def acknowledged(cluster) -> JobSpec:
    """A spec whose versions may differ, as they do in this cluster."""
    cluster.become(node("wopr", 1, gpus=2, torch="2.12.0"), node("muthur", 2, gpus=2))
    return msgspec.structs.replace(SCRIPT_JOB, mixed_versions=True)


def test_an_acknowledgment_is_for_one_launch(do, cluster, known, acknowledged, tmp_path):
    view = msgspec.structs.replace(known.view(), spec=acknowledged)
    known.view = lambda: view
    words = ("launch", known.id, "--detach")
    do(*words, directory=tmp_path)
    assert not cluster.launches[-1].mixed_versions
    said = do(*words, "--mixed-versions", directory=tmp_path).data["warnings"]
    assert cluster.launches[-1].mixed_versions
    assert [one["kind"] for one in said] == ["mixed-versions"]


def test_an_acknowledgment_in_a_job_file_is_said(do, cluster, keep, acknowledged, tmp_path):
    words = ("launch", keep(acknowledged), "--detach")
    said = do(*words, directory=tmp_path).data["warnings"]
    again = do(*words, "--mixed-versions", directory=tmp_path).data["warnings"]
    assert cluster.launches[-1].mixed_versions
    assert [one["kind"] for one in said] == [one["kind"] for one in again] == ["mixed-versions"]
    assert said[0]["cause"] != again[0]["cause"]
    assert "2.12.0" in said[0]["cause"]


def test_a_file_of_that_name_wins_over_a_job(launched, keep, known):
    other = msgspec.structs.replace(SCRIPT_JOB, name="the file")
    assert launched(keep(other, known.id)).name == "the file"


def test_a_job_file_may_stand_in_the_cell(launched):
    assert launched(cell=write_spec(SCRIPT_JOB, with_secrets=True)) == SCRIPT_JOB


def test_what_is_given_besides_wins(launched, keep, tmp_path):
    (tmp_path / "train.py").write_text("other = 1\n")
    spec = launched(
        keep(SCRIPT_JOB), "--member", "hal:3", "--port", "29600", "--name", "again", "--env", "B=9",
        "--torchrun=--redirects=0", "--link-capacity", "1mbit", "--file", "train.py",
        "--", "--lr", "4",
    )  # fmt: skip
    assert spec == JobSpec(
        entry=("train.py", "--lr", "4"),
        participants=(Participant(node="hal", nproc=3),),
        name="again",
        files={"train.py": "other = 1\n"},
        environment={"A": "1", "B": "9", "HF_TOKEN": "hf_abc"},
        torchrun_arguments=("--redirects=1", "--redirects=0"),
        port=29600,
        link_capacity_bytes_per_s=125e3,
    )


def test_the_head_can_be_another(launched, keep):
    spec = launched(keep(SCRIPT_JOB), "--head", "muthur")
    assert spec.participants == SCRIPT_JOB.participants[::-1]


def test_a_recipe_is_changed_with_set_and_a_script_is_not(launched, keep):
    assert launched(keep(RECIPE_JOB), "--set", "train.steps=9").entry[-4:] == (
        "--set", "train.steps=3", "--set", "train.steps=9",
    )  # fmt: skip
    with pytest.raises(SpecError, match=wording(r"train\.steps=9: this job runs train\.py")):
        launched(keep(SCRIPT_JOB), "--set", "train.steps=9")
    with pytest.raises(SpecError, match=wording("a recipe takes no arguments")):
        launched(keep(RECIPE_JOB), "--", "--lr", "4")


def test_without_participants_they_are_chosen_as_ever(launched, keep):
    spec = launched(keep(msgspec.structs.replace(SCRIPT_JOB, participants=())))
    assert {one.node for one in spec.participants} == {"wopr", "muthur", "hal"}


def test_dry_run_takes_all_of_them(do, cluster, keep, known, tmp_path, text):
    for target in (keep(SCRIPT_JOB), known.id):
        outcome = do("launch", "--dry-run", target, directory=tmp_path)
        assert "# muthur" in text(outcome.renderable)
        assert outcome.data["spec"]["name"] == "mine"
    assert cluster.launches == []


@pytest.mark.wording
def test_nodes_that_are_gone_are_named_in_one_error(do, keep, tmp_path):
    few = StandInCluster([node("hal", 3), node("muthur", 1, liveness="lost", reason="gone")])
    for verb in ("launch", "launch --dry-run"):
        with pytest.raises(NodeError) as caught:
            do(*verb.split(), keep(SCRIPT_JOB), on=few, directory=tmp_path)
        assert str(caught.value) == (
            "wopr, muthur took part in this job and do not answer now. Fix: choose nodes with "
            "--member HOST:N (there is hal), or start the missing ones."
        )
    do("launch", keep(SCRIPT_JOB), "--member", "hal:1", on=few, directory=tmp_path)
    assert few.launches[0].participants == (Participant(node="hal"),)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("[cooking]\nx = 1\n", SpecError, "neither a recipe nor a job file.*cooking.*mntrain_job"),
        ("mntrain_job = 2\n", SpecError, "upgrade"),
        ('mntrain_job = 1\nname = "open\n', SpecError, "not valid TOML.*line 2"),
        ('mntrain_job = 1\nentry = ["a.py"]\nprot = 3\n', SpecError, "use port"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(launched, tmp_path, text, error, words):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(error, match=wording(rf"x\.toml: .*{words}")):
        launched("x.toml")


def test_neither_a_file_nor_a_job(launched):
    with pytest.raises(JobNotFoundError, match=wording("j-0000: neither a file here nor a job")):
        launched("j-0000")
    with pytest.raises(SpecError, match=wording("no such recipe or script")):
        launched("train")


def test_export_writes_what_launch_takes(do, launched, known, tmp_path, text):
    outcome = do("export", known.id, "--output", "kept.toml", directory=tmp_path)
    said = text(outcome.renderable)
    assert "mntrain launch kept.toml" in said
    assert says("they are or look like secrets: HF_TOKEN", said)
    assert outcome.data["left_out"] == ["HF_TOKEN"]
    environment = {"A": "1", "B": "2", "HF_TOKEN": "mine"}
    assert launched("kept.toml", environment=environment) == msgspec.structs.replace(
        SCRIPT_JOB, environment=environment, from_environment=("HF_TOKEN",)
    )


def test_an_acknowledgment_is_not_exported(do, known, acknowledged, text):
    view = msgspec.structs.replace(known.view(), spec=acknowledged)
    known.view = lambda: view
    assert not read_spec(text(do("export", known.id).renderable)).mixed_versions


def test_export_without_a_file_is_the_file(do, cluster, known, text):
    script = "if 1:\n\tx = '" + "long " * 60 + "'\n"
    spec = msgspec.structs.replace(SCRIPT_JOB, files={"train.py": script})
    view = msgspec.structs.replace(known.view(), spec=spec)
    known.view = lambda: view
    outcome = do("export", known.id, "--with-secrets")
    assert read_spec(text(outcome.renderable, width=40)) == spec
    assert text(outcome.renderable) == outcome.data["text"]


def test_export_writes_over_nothing_unless_told(do, known, tmp_path):
    (tmp_path / "kept.toml").write_text("precious")
    with pytest.raises(SpecError, match=wording(r"kept\.toml: already exists.*--force")):
        do("export", known.id, "--output", "kept.toml", directory=tmp_path)
    assert (tmp_path / "kept.toml").read_text() == "precious"
    do("export", known.id, "--output", "kept.toml", "--force", directory=tmp_path)
    assert "mntrain_job = 1" in (tmp_path / "kept.toml").read_text()
    with pytest.raises(SpecError, match=wording("cannot be written: No such file")):
        do("export", known.id, "--output", "no/such/kept.toml", directory=tmp_path)


def test_secrets_are_written_only_when_asked_and_for_the_owner_alone(do, known, tmp_path):
    kept = tmp_path / "kept.toml"
    do("export", known.id, "--output", "kept.toml", directory=tmp_path)
    assert "hf_abc" not in kept.read_text()
    outcome = do(
        "export", known.id, "--output", "kept.toml", "--force", "--with-secrets", directory=tmp_path
    )
    assert "hf_abc" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert outcome.data["left_out"] == []
