"""``doctor``: what was found in 80 columns, its exit code, and all of it for programs."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.doctor.workload.asked_paths import question_of_job
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.trial import JobTrial, TriedNode
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.doctor.faults import FAULTS
from tests.doctor.faults.workload import without_model
from tests.doctor.healthy import healthy
from tests.wording import says


def fault(check: str, level: str):
    return next(one for one in FAULTS if (one.check, one.level) == (check, level))


def test_healthy_nodes_have_passed_and_only_that_is_said(do, text):
    outcome = do("doctor")
    shown = text(outcome.renderable, 80)
    assert "passed on 3 nodes" in shown
    assert "Free disk" not in shown
    assert outcome.exit_code == 0


def test_all_checks_can_be_listed(do, text):
    assert "Free disk" in text(do("doctor", "--all").renderable, 80)


def test_what_was_found_fits_eighty_columns_with_its_fix(do, text, cluster):
    for check, level in (("disk-space", "stops"), ("clock", "slows")):
        cluster.doctor.case = fault(check, level).make(cluster.doctor.case)
    outcome = do("doctor")
    shown = text(outcome.renderable, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.index("Free disk") < shown.index("Clock")
    assert says("Fix: on muthur", shown)
    assert outcome.exit_code == 1


def test_what_only_slows_does_not_fail(do, cluster):
    cluster.doctor.case = fault("clock", "slows").make(healthy())
    assert do("doctor").exit_code == 0


def test_many_nodes_are_listed_one_finding_a_line(do, text, cluster):
    nodes = [
        msgspec.structs.replace(one, info=msgspec.structs.replace(one.info, name=f"node{number}"))
        for number in range(8)
        for one in fault("clock", "slows").make(healthy()).nodes[1:2]
    ]
    cluster.doctor.case = msgspec.structs.replace(
        healthy(), nodes=(*healthy().nodes, *nodes[:3], *healthy().nodes)
    )
    shown = text(do("doctor").renderable, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "node1" in shown


def test_the_hub_keeps_no_node_from_being_examined(do, text, tmp_path):
    (tmp_path / "r.toml").write_text('[model]\npath = "org/tiny"\n')
    outcome = do("doctor", "--for", "r.toml", directory=tmp_path)
    assert "passed on" in text(outcome.renderable, 80)


def test_a_module_is_examined_by_its_name(do, cluster, tmp_path):
    do("doctor", "--for", "pkg.train", "--", "--lr", "1", directory=tmp_path)
    assert cluster.doctor.spec.entry == ("-m", "pkg.train", "--lr", "1")


def test_a_silent_node_is_named(do, text, cluster):
    problem = Problem(kind=Kind.NO_ANSWER, cause="no answer for 9 s", fix="start its agent")
    cluster.doctor.silent = {"nostromo": problem}
    assert "nostromo: no answer for 9 s" in text(do("doctor").renderable)


def test_programs_get_every_finding(do, as_json, cluster):
    cluster.doctor.case = fault("disk-space", "stops").make(healthy())
    data = as_json(do("doctor", "--json"))
    assert data["nodes"] == ["wopr", "muthur", "hal"]
    assert data["findings"][0]["check"] == "disk-space"
    assert data["findings"][0]["problem"]["kind"] == "disk-full"


def test_only_the_nodes_that_are_named_are_examined(do, as_json):
    assert as_json(do("doctor", "hal", "--json"))["nodes"] == ["hal"]


def test_what_a_recipe_reads_and_writes_is_asked_for(do, cluster, tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[model]\npath = "/models/m"\n[data]\nsource = "corpus.txt"\n'
        '[output]\ndirectory = "~/out"\n'
    )
    do("doctor", "--for", "mine.toml", "--python", "conda:lab", directory=tmp_path)
    asked = question_of_job(cluster.doctor.spec)
    assert [(one.use, one.path) for one in asked.paths] == [
        ("model", "/models/m"),
        ("tokenizer", "/models/m"),
        ("data", str(tmp_path / "corpus.txt")),
        ("output", "~/out"),
    ]
    assert asked.python == "conda:lab"


def test_the_folder_and_the_interpreter_of_a_job_are_asked_for(do, cluster):
    (job,) = cluster._jobs.values()
    spec = JobSpec(
        entry=("train.py",),
        participants=(Participant(node="wopr"),),
        workdir="/mnt/lab",
        python="/env",
    )
    job.spec = lambda: spec
    do("doctor", "--for", job.id)
    asked = question_of_job(cluster.doctor.spec)
    assert [(one.use, one.path) for one in asked.paths] == [
        ("working directory", "/mnt/lab"),
        ("script", "/mnt/lab/train.py"),
    ]
    assert asked.python == "/env"


def test_what_is_neither_a_file_nor_a_job_is_refused(do):
    with pytest.raises(MntrainError):
        do("doctor", "--for", "none.toml")


def test_it_takes_what_a_launch_takes(do, cluster, tmp_path):
    (tmp_path / "train.py").write_text("import torch, no_such_module\n")
    words = ("muthur:1:eth1", "wopr", "--port", "29511", "--env", "KEPT=/mnt/kept")
    do("doctor", *words, "--for", "train.py", "--", "--steps", "7", directory=tmp_path)
    spec = cluster.doctor.spec
    assert spec.entry == ("train.py", "--steps", "7")
    assert [(one.node, one.interface) for one in spec.participants] == [
        ("muthur", "eth1"),
        ("wopr", None),
    ]
    assert (spec.port, spec.environment) == (29511, {"KEPT": "/mnt/kept"})
    launched = do("launch", "train.py", "-m", "muthur:1:eth1", "--dry-run", directory=tmp_path)
    assert launched.data["spec"]["files"] == spec.files


def test_options_alone_say_that_a_job_is_meant(do, cluster):
    do("doctor", "wopr:1", "--port", "29511")
    assert (cluster.doctor.spec.entry, cluster.doctor.spec.port) == ((), 29511)


def test_nodes_alone_do_not(do, cluster):
    do("doctor", "wopr", "muthur", "--python", "conda:lab")
    assert cluster.doctor.spec is None
    assert cluster.doctor.asked.python == "conda:lab"


def test_a_dry_run_says_what_the_doctor_finds(do, cluster, text, tmp_path):
    (tmp_path / "train.py").write_text("import torch\n")
    cluster.doctor.case = fault("disk-space", "stops").make(healthy())
    outcome = do("launch", "train.py", "--dry-run", directory=tmp_path)
    assert "Free disk" in text(outcome.renderable)
    assert outcome.data["doctor"]["findings"][0]["check"] == "disk-space"
    assert cluster.doctor.is_quick, "it loads no link"
    asked = len(cluster.doctor.examinations)
    without = do("launch", "train.py", "--dry-run", "--skip-doctor", directory=tmp_path)
    assert "doctor" not in without.data
    assert len(cluster.doctor.examinations) == asked


def test_what_needs_no_root_is_mended_at_once(do, cluster):
    cluster.doctor.case = without_model(healthy())
    assert do("doctor").exit_code == 1
    assert cluster.files.pushes == []
    do("doctor", "--apply")
    ((name, nodes, _, source),) = cluster.files.pushes
    assert (str(name), nodes) == ("models:llama", ("muthur",))
    assert source in ("wopr", "hal")
    assert len(cluster.doctor.examinations) == 3, "and looked at again"


def test_a_recipe_is_tried_on_the_nodes_that_a_launch_would_use(do, as_json, cluster, tmp_path):
    (tmp_path / "mine.toml").write_text('[model]\npreset = "llama-tiny"\n')
    data = as_json(
        do("doctor", "--for", "mine.toml", "--deep", "--python", "/env", directory=tmp_path)
    )
    ((spec, modules),) = cluster.trial.tried
    assert spec.runs_trainer
    assert spec.python == "/env"
    assert modules == ()
    (examined,) = cluster.doctor.examinations
    assert examined == spec.participants
    tried = [one["node"] for one in data["findings"] if one["check"] == "deep-step"]
    assert tried == [one.node for one in spec.participants]


def test_a_script_is_tried_with_the_modules_that_it_imports(do, cluster, tmp_path):
    (tmp_path / "train.py").write_text("import torch, msgspec\n")
    do("doctor", "--for", "train.py", "--deep", directory=tmp_path)
    ((spec, modules),) = cluster.trial.tried
    assert spec.entry == ("train.py",)
    assert modules == ("msgspec", "torch")


def test_without_a_job_there_is_nothing_to_try(do, cluster):
    with pytest.raises(MntrainError) as refused:
        do("doctor", "--deep")
    assert says("--for", refused.value.fix)
    assert cluster.trial.tried == []


def test_why_something_was_not_tried_is_said_once(do, text, cluster):
    cluster.doctor.case = untried(healthy())
    shown = text(do("doctor").renderable, 80)
    assert says("a job runs there", shown)
    assert shown.count("j-1234") == 1


def untried(case: Case) -> Case:
    untold = Problem(kind=Kind.JOBS_RUNNING, cause="a job runs there", fix="wait for j-1234")
    nodes = tuple(TriedNode(one.name, (rank,)) for rank, one in enumerate(case.nodes))
    trial = JobTrial(is_recipe=True, nodes=nodes, untold=untold)
    return msgspec.structs.replace(case, trial=trial)
