"""``report``: one archive with what is known of a job, and no secrets."""

from __future__ import annotations

import json
import zipfile

import msgspec
import pytest

from jupyter_mntrain.cluster import LogLine
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.verdict import Verdict
from tests.wording import wording

TOKEN = "hf_" + "aBcDeFgHiJ" * 3
PASSWORD = "hunter2hunter2"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"
PRINTED = {
    AWS: "connecting with {}",
    "s3cr3t": "dsn: host=db password={}",
    "YWRhOmh1bnRlcjI=": "> Authorization: Basic {}",
    "T0AB/B0CD/" + "aB3dE6gH9": "posting to https://hooks.slack.com/services/{}",
}
"""Secrets that a script prints, the first of them also an argument of its own."""


@pytest.fixture
def failed(cluster, monkeypatch):
    """The newest job: it has failed, with secrets in its variables, words, log and cause."""
    (job, *_) = cluster._jobs.values()
    problem = Problem(
        kind=Kind.EXCEPTION, cause=f"ValueError: {TOKEN} is no number", detail=PASSWORD, node="wopr"
    )
    view = job.view()
    spec = msgspec.structs.replace(
        view.spec,
        environment={"DB_PASSWORD": PASSWORD, "OMP_NUM_THREADS": "2"},
        entry=("train.py", "--api-key", TOKEN, "--aws-secret", AWS),
    )
    verdict = Verdict(problem=problem, sureness="certain", speaks_for=("it ended first",))
    changed = msgspec.structs.replace(view, spec=spec, problem=problem, verdict=verdict)
    monkeypatch.setattr(job, "view", lambda: changed)
    printed = [f"connecting with {PASSWORD}", *(text.format(one) for one, text in PRINTED.items())]
    job.lines += [LogLine(node="wopr", rank=0, text=text) for text in printed]
    return job


def test_a_report_holds_what_is_known_and_no_secret(do, failed, tmp_path):
    done = do("report", failed.id, directory=tmp_path)
    path = tmp_path / f"mntrain-report-{failed.id}.zip"
    assert path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert list(parts) == done.data["parts"]
    assert {"verdict.txt", "job.json", "numbers.json", "logs/wopr.txt"} <= set(parts)
    assert "torch 2.9.0" in parts["nodes/wopr.packages.txt"]
    assert "none" in parts["nodes/wopr.nvidia-smi.txt"]
    assert "nodes/wopr.json" in parts
    assert "is no number" in parts["verdict.txt"]
    assert "it ended first" in parts["verdict.txt"]
    assert "[wopr rank 0] step 1 loss 7.1" in parts["logs/wopr.txt"]
    job = json.loads(parts["job.json"])
    assert job["spec"]["environment"] == {"DB_PASSWORD": "***", "OMP_NUM_THREADS": "2"}
    assert job["verdict"]["sureness"] == "certain"
    everything = "".join(parts.values())
    assert [one for one in (TOKEN, PASSWORD, *PRINTED) if one in everything] == []


def test_an_existing_file_stays_unless_it_may_be_replaced(do, failed, tmp_path):
    (tmp_path / "r.zip").write_text("mine")
    with pytest.raises(SpecError, match=wording("--force")):
        do("report", failed.id, "--output", "r.zip", directory=tmp_path)
    assert (tmp_path / "r.zip").read_text() == "mine"
    do("report", failed.id, "--output", "r.zip", "--force", directory=tmp_path)
    assert zipfile.is_zipfile(tmp_path / "r.zip")
    with pytest.raises(SpecError, match=wording("cannot be written")):
        do("report", failed.id, "--output", "no/such/place.zip", directory=tmp_path)


@pytest.mark.parametrize("name", ["r.tar.gz", "r.TGZ", "r.tar", "sub/r.7z", "r.zip.xz"])
def test_a_zip_is_not_given_the_name_of_another_archive(do, failed, tmp_path, name):
    with pytest.raises(SpecError) as caught:
        do("report", failed.id, "--output", name, directory=tmp_path)
    assert ".zip" in caught.value.fix
    assert list(tmp_path.iterdir()) == []
