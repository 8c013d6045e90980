"""``push``, ``pull``, ``du`` and ``gc``: what they ask of the cluster, and what they say."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.files.job_files import WrittenFiles
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import Cleaned, JobFiles, LargeFile
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.wording import says

LLAMA = LargeName("models", "llama")
FULL = Problem(kind=Kind.DISK_FULL, cause="the disk has 1 GB free", fix="free space there")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "llama").mkdir()
    return tmp_path


def test_a_folder_is_a_model_of_its_name_on_all_nodes(do, text, cluster, folder):
    outcome = do("push", "llama", directory=folder)
    assert cluster.files.pushes == [(LLAMA, (), folder / "llama", None)]
    shown = text(outcome.renderable, 80)
    assert "models:llama is on wopr, muthur" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert outcome.exit_code == 0


def test_another_name_and_some_nodes(do, cluster, folder):
    do("push", "llama", "wopr", "hal", "--to", "data:set/one", directory=folder)
    name = LargeName("data", "set/one")
    assert cluster.files.pushes == [(name, ("wopr", "hal"), folder / "llama", None)]


def test_a_node_may_be_the_source(do, text, cluster):
    outcome = do("push", "models:llama", "muthur", "hal", "--from", "wopr")
    assert cluster.files.pushes == [(LLAMA, ("muthur", "hal"), None, "wopr")]
    assert says("was on hal already", text(outcome.renderable))


@pytest.mark.parametrize(
    "words",
    [
        ("push", "absent"),
        ("push", "models:llama"),
        ("push", "models:llama", "--from", "wopr", "--to", "models:x"),
        ("push", "llama", "--to", "models:../x"),
        ("push", "../llama", "--from", "wopr"),
        ("pull", "models:llama"),
        ("pull", "wopr:models:../x"),
        ("gc", "llama"),
        ("gc", "--yes", "--dry-run"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(do, cluster, folder, words):
    with pytest.raises(SpecError) as caught:
        do(*words, directory=folder)
    assert caught.value.fix
    assert [*cluster.files.pushes, *cluster.files.pulls, *cluster.files.cleanings] == []


def test_a_node_that_failed_is_named_with_the_fix(do, text, as_json, cluster, folder):
    cluster.files.failed = {"muthur": FULL}
    outcome = do("push", "llama", directory=folder)
    shown = text(outcome.renderable, 80)
    assert "muthur: the disk has 1 GB free" in shown
    assert says("repeat the push to continue", shown)
    assert outcome.exit_code == 1
    assert as_json(outcome)["failed"]["muthur"]["kind"] == "disk-full"


def test_what_a_node_has_is_pulled_into_this_folder(do, text, cluster, folder):
    do("pull", "wopr:models:org/llama", directory=folder)
    outcome = do("pull", "wopr:models:llama", "elsewhere/x", directory=folder)
    assert cluster.files.pulls == [
        ("wopr", LargeName("models", "org/llama"), folder / "llama"),
        ("wopr", LLAMA, folder / "elsewhere" / "x"),
    ]
    assert "from wopr" in text(outcome.renderable)


def test_what_a_job_wrote_is_pulled_into_this_folder(do, text, as_json, cluster, folder):
    job = cluster.jobs()[0].job_id
    do("pull", job, directory=folder)
    do("pull", f"{job}:./out/model.pt", "--rank", "1", directory=folder)
    outcome = do("pull", f"{job}:out/", "here", "--node", "wopr", directory=folder)
    assert cluster.files.job_pulls == [
        (job, folder / job, "", None, None),
        (job, folder / "model.pt", "out/model.pt", None, 1),
        (job, folder / "here", "out", "wopr", None),
    ]
    shown = text(outcome.renderable)
    assert "3 files, 3.2 GB from wopr" in shown
    assert says("socket is left out: not a file", shown)
    assert as_json(outcome)["nodes"] == {"wopr": 3 << 30}
    assert outcome.path == folder / "here"
    for option in (("--rank", "1"), ("--list",)):
        with pytest.raises(SpecError):
            do("pull", "wopr:models:llama", *option)


@pytest.mark.parametrize("what", ["wopr:models:llama", "JOB", "JOB:out"])
def test_a_current_folder_that_is_gone_is_not_made_anew(do, cluster, tmp_path, what):
    gone = tmp_path / "gone"
    what = what.replace("JOB", cluster.jobs()[0].job_id)
    for words in ([], ["sub/here"]):
        with pytest.raises(SpecError) as caught:
            do("pull", what, *words, directory=gone)
        assert str(gone) in caught.value.cause
    assert [*cluster.files.pulls, *cluster.files.job_pulls] == []
    do("pull", what, str(tmp_path / "x"), directory=gone)


def test_what_differs_is_said_in_one_line(do, text, as_json, cluster, folder):
    job = cluster.jobs()[0].job_id
    cluster.files.differ = (".hydra/config.yaml", "a.log", "b.log", "c.log")
    outcome = do("pull", job, directory=folder)
    told = "4 files: .hydra/config.yaml, a.log, b.log, …"
    (line,) = (one for one in text(outcome.renderable, 200).splitlines() if told in one)
    assert says("not the same on all nodes, so in wopr/, muthur/", line)
    assert as_json(outcome)["folders"] == {"wopr": "wopr", "muthur": "muthur"}


def test_a_list_fetches_nothing_and_says_what_is_where(do, text, as_json, cluster):
    job = cluster.jobs()[0].job_id
    both, one = LargeFile("out/both.pt", 110_000), LargeFile("log.txt", 10)
    cluster.files.written = WrittenFiles(
        {
            "wopr": JobFiles("/w", (both, one), 2, 110_010, {"out/socket": "not a file"}),
            "muthur": JobFiles("/w", (both,), 30_000, 110_000),
        },
        {"hal": FULL},
    )
    outcome = do("pull", f"{job}:out", "--list", "--rank", "1")
    assert cluster.files.job_looks == [(job, "out", None, 1)]
    assert not cluster.files.job_pulls
    shown = " ".join(text(outcome.renderable).split())
    assert says("out/both.pt 110 kB wopr, muthur", shown)
    assert says("wopr: out/socket is left out: not a file", shown)
    assert says("muthur has 29,999 more files", shown)
    assert "hal: the disk has 1 GB free" in shown
    assert as_json(outcome)["nodes"]["muthur"]["count"] == 30_000


def test_status_says_what_a_job_that_has_ended_wrote(do, text, as_json, cluster):
    job = cluster.jobs()[0].job_id
    assert as_json(do("status", job))["files"] is None  # it runs
    assert not cluster.files.job_looks
    cluster.job(job).become("succeeded")
    files = tuple(LargeFile(f"out/{number}.pt", 110_000) for number in range(5))
    held = JobFiles("/jobs/work", files, count=5, size_bytes=550_000)
    cluster.files.written = WrittenFiles({"wopr": held, "muthur": held})
    outcome = do("status", job)
    told = f"wrote 5 files, 1.1 MB: out/0.pt, out/1.pt, out/2.pt, …; to fetch: mntrain pull {job}"
    assert says(told, " ".join(text(outcome.renderable).split()))
    assert as_json(outcome)["files"]["paths"] == [one.path for one in files]


def test_what_lies_on_nodes_is_listed_with_size_and_age(do, text, as_json, cluster):
    cluster.files.failed = {"hal": FULL}
    outcome = do("du")
    shown = text(outcome.renderable, 80)
    assert "models:llama" in shown
    assert "/data/models" in shown
    assert "hal: the disk has 1 GB free" in shown
    assert as_json(outcome)["spaces"]["wopr"]["things"][0]["what"] == "models:llama"


def test_nothing_is_deleted_without_yes(do, text, as_json, cluster):
    outcome = do("gc", "models:llama", "--node", "wopr")
    assert cluster.files.cleanings == [(("models:llama",), ("wopr",), True)]
    shown = text(outcome.renderable, 80)
    assert says("nothing is deleted yet", shown)
    assert "gc models:llama --node wopr --yes" in shown
    assert says("models:llama is not deleted: a job", shown)
    assert as_json(outcome)["is_done"] is False


def test_yes_deletes(do, text, cluster):
    outcome = do("gc", "--yes")
    assert cluster.files.cleanings == [((), (), False)]
    assert "--yes" not in text(outcome.renderable)


def test_where_nothing_can_go_no_command_is_offered(do, text, cluster, monkeypatch):
    monkeypatch.setattr(cluster.files, "clean", lambda *_, **__: {"wopr": Cleaned(())})
    assert "--yes" not in text(do("gc").renderable)
