"""Job files: which files a launch sends, and what it runs of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec
from tests.standin.screen import Paper


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/__init__.py", "pkg/run.py", "alone.py"):
        (tmp_path / name).write_text("import pkg\n" if name == "train.py" else "x = 1\n")
    (tmp_path / "data.bin").write_bytes(b"\xff\x00")
    (tmp_path / "r.toml").write_text('[model]\npreset = "llama-tiny"\n')
    return tmp_path


@pytest.fixture
def launched(do, cluster, project):
    def launch(*words: str, **changes: Any) -> tuple[JobSpec, Any]:
        outcome = do("launch", "--detach", *words, **({"directory": project} | changes))
        return cluster.launches[-1], outcome.data

    return launch


def test_a_script_that_imports_from_its_folder_brings_it_along(launched, cluster) -> None:
    spec, data = launched("train.py")
    (sent,) = cluster.projects
    assert spec.project == sent.sha256 == data["project"]["sha256"]
    assert (spec.entry, spec.files) == (("train.py",), {})
    assert sent.names >= {"train.py", "pkg/run.py", "data.bin"}
    assert data["project"]["count"] == len(sent.names)
    for words in (["alone.py"], ["train.py", "--no-project"]):
        spec, data = launched(*words)
        assert (spec.project, list(spec.files)) == (None, words[:1])
        assert "project" not in data


def test_a_script_runs_by_its_path_in_the_named_project(launched, cluster, project) -> None:
    spec, _ = launched("pkg/run.py", "--project", ".")
    assert (spec.entry, spec.files) == (("pkg/run.py",), {})
    spec, _ = launched("run.py", "--project", "..", directory=project / "pkg")
    assert spec.entry == ("pkg/run.py",)
    with pytest.raises(SpecError):
        launched("train.py", "--project", "pkg")
    for name in (".gitignore", ".mntrainignore"):
        (project / name).write_text("train.py\n")
        spec, _ = launched("train.py", "--project", ".")
        assert spec.entry == ("train.py",)
        assert "train.py" in cluster.projects[-1].names, "it was named, though it is ignored"


def test_a_module_runs_by_its_name(launched) -> None:
    spec, data = launched("--module", "pkg.run")
    assert (spec.entry, spec.name) == (("-m", "pkg.run"), "run")
    assert data["project"]["count"] > 1
    spec, data = launched("--module", "lm_eval")
    assert spec.project is None, "it is installed on the nodes"
    for words in (["train.py", "--module", "pkg"], ["--module", "pkg/run.py"]):
        with pytest.raises(SpecError):
            launched(*words)


def test_small_files_that_a_script_certainly_reads_come_along(launched, project) -> None:
    for name in ("configs/base.yaml", "src/own.json", "configs/.hidden", "secrets.yaml"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("lr: 1\n")
    reads = "open('{}').read()\n"
    script = project / "src" / "train.py"
    script.write_text(
        "from pathlib import Path\n"
        + "".join(map(reads.format, ("configs/base.yaml", "configs/.hidden", "secrets.yaml")))
        + "(Path(__file__).parent / 'own.json').read_text()\n"
        + "if input(): open('data.bin')\n"
    )
    spec, _ = launched("src/train.py")
    assert sorted(spec.files) == ["configs/base.yaml", "own.json", "train.py"]
    spec, _ = launched("src/train.py", "--no-project")
    assert list(spec.files) == ["train.py"]
    # What git ignores, and what the script may make itself, stay here.
    (project / ".git").mkdir()
    (project / ".gitignore").write_text("configs/\n")
    spec, _ = launched("src/train.py")
    assert sorted(spec.files) == ["own.json", "train.py"]
    script.write_text("import os\nos.makedirs('configs')\nopen('configs/base.yaml').read()\n")
    assert list(launched("src/train.py")[0].files) == ["train.py"]


def test_the_configuration_that_hydra_reads_is_sent(launched, cluster, project) -> None:
    for name in ("src/conf/c.yaml", "configs/c.yaml"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text("lr: 1\n")
    text = 'import hydra\n@hydra.main(config_path="{}")\ndef main(cfg): ...\n'
    for path, entry, name in (
        ("conf", "train.py", "conf/c.yaml"),
        ("../configs", "src/train.py", "configs/c.yaml"),
    ):
        (project / "src" / "train.py").write_text(text.format(path))
        spec, _ = launched("src/train.py")
        assert (spec.entry, spec.files) == ((entry,), {})
        assert cluster.projects[-1].names >= {entry, name}


@pytest.mark.parametrize("named", [".", "./", "pkg/..", "../{}"])
def test_a_working_directory_may_be_named_from_here(launched, project, named) -> None:
    spec, _ = launched("alone.py", "--workdir", named.format(project.name))
    assert (spec.workdir, spec.entry, spec.files) == (str(project), ("alone.py",), {})
    spec, _ = launched("pkg/run.py", "--workdir", "pkg")
    assert (spec.workdir, spec.entry) == (str(project / "pkg"), ("run.py",))
    spec, _ = launched("gone.py", "--workdir", "~/x")
    assert spec.workdir == "~/x"


def write_program(path: Path, text: str = "#!/bin/sh\nexec python train.py\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


NO_PYTHON = "--torchrun=--no-python"


def test_a_program_is_sent_with_what_it_names(launched, cluster, project) -> None:
    write_program(project / "run.sh")
    spec, _ = launched("run.sh", NO_PYTHON)
    assert (spec.entry, spec.files) == (("./run.sh",), {})
    (sent,) = cluster.projects
    assert {"run.sh", "train.py", "pkg/run.py"} <= sent.names
    assert next(one for one in sent.tree.files if one.path == "run.sh").is_executable
    write_program(project / "lone.sh", "#!/bin/sh\necho $RANK\n")
    spec, _ = launched("./lone.sh", NO_PYTHON)
    assert spec.entry == ("./lone.sh",)
    assert cluster.projects[-1].names == {"lone.sh"}
    spec, _ = launched("../run.sh", NO_PYTHON, "--project", "..", directory=project / "pkg")
    assert spec.entry == ("./run.sh",)
    assert cluster.projects[-1].names >= {"run.sh", "train.py"}


def test_a_program_of_the_nodes_is_found_there(launched, project) -> None:
    for name in ("bash", "/opt/bin/x"):
        spec, _ = launched(name, NO_PYTHON)
        assert (spec.entry, spec.project, spec.files) == ((name,), None, {})
    (project / "there").mkdir()
    write_program(project / "there" / "run.sh")
    place = str(project / "there")
    spec, _ = launched(f"{place}/run.sh", NO_PYTHON, "--workdir", place)
    assert (spec.entry, spec.project) == (("./run.sh",), None)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("words", "cause", "fix"),
    [
        (["plain.sh"], "may not be executed", "chmod +x plain.sh"),
        (["no_line.sh"], "has no first line", "#!/bin/bash"),
        (["gone.sh"], "no such program", "check"),
        (["./gone"], "no such program", "use alone.py"),
        ([], "nothing to launch", "name"),
    ],
)
def test_a_program_that_cannot_run_is_refused(launched, project, words, cause, fix) -> None:
    (project / "plain.sh").write_text("#!/bin/sh\n")
    write_program(project / "no_line.sh", "echo 1\n")
    with pytest.raises(SpecError) as caught:
        launched(*words, NO_PYTHON)
    assert cause in caught.value.cause
    assert fix in caught.value.fix


def test_a_cell_may_import_what_lies_beside_the_notebook(launched, cluster, project) -> None:
    spec, _ = launched(cell="import pkg.run\n")
    assert (spec.entry, list(spec.files)) == (("cell.py",), ["cell.py"])
    assert spec.project is not None
    (project / "cell.py").write_text("")
    with pytest.raises(SpecError):
        launched(cell="import pkg.run\n")


def test_a_folder_that_is_named_is_sent_with_what_git_ignores(launched, cluster, project) -> None:
    (project / ".git").mkdir()
    (project / ".gitignore").write_text("*.bin\nprepared/\n")
    for name in ("prepared/train.bin", "prepared/sub/val.bin", "prepared/__pycache__/a.pyc"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(b"\xff" * 9)
    (project / "prepared" / "._train.bin").write_bytes(b"of macOS")
    (project / "prepared" / ".gitignore").write_text("*")
    launched("alone.py", "--no-project", "--file", "prepared")
    (sent,) = cluster.projects
    prepared = {"prepared/train.bin", "prepared/sub/val.bin"}
    assert sent.names - {"prepared/.gitignore"} == prepared
    launched("alone.py", "--project", ".", "--file", "prepared/")
    assert cluster.projects[-1].names >= prepared


def test_a_folder_of_the_nodes_is_where_it_runs(launched, project) -> None:
    spec, _ = launched("train.py", "--workdir", "/shared/lm")
    assert (spec.workdir, spec.entry, list(spec.files)) == (
        "/shared/lm", ("train.py",), ["train.py"],
    )  # fmt: skip
    spec, _ = launched("sub/other.py", "--workdir", "/shared/lm")
    assert (spec.entry, spec.files) == (("sub/other.py",), {})
    spec, _ = launched("pkg/run.py", "--workdir", str(project))
    assert (spec.entry, spec.files) == (("pkg/run.py",), {})
    spec, _ = launched("--module", "pkg.run", "--workdir", "~/lm")
    assert (spec.entry, spec.project) == (("-m", "pkg.run"), None)
    with pytest.raises(SpecError):
        launched("train.py", "--workdir", "/x", "--project", ".")


def test_a_recipe_has_no_project(launched) -> None:
    with pytest.raises(SpecError):
        launched("r.toml", "--project", ".")


def test_binary_files_are_sent_without_a_project_too(launched, cluster) -> None:
    screen = Paper()
    spec, _ = launched("alone.py", "--file", "data.bin", "--file", "pkg/run.py", screen=screen)
    assert set(spec.files) == {"alone.py", "pkg/run.py"}
    assert cluster.projects[-1].names == {"data.bin"}
    assert "3 files: alone.py, data.bin, pkg/run.py" in "".join(map(str, screen.said))


def test_a_dry_run_shows_what_would_be_sent(do, project, text, as_json) -> None:
    (project / ".env").write_text("TOKEN=x")
    outcome = do("launch", "--dry-run", "train.py", directory=project)
    assert str(project) in text(outcome.renderable, width=1000)
    data = as_json(outcome)
    assert data["project"]["count"] == 7
    assert "private-file" in [one["kind"] for one in data["warnings"]]


def test_a_limit_is_settable(launched) -> None:
    with pytest.raises(SpecError):
        launched("train.py", "--project-limit", "10 B")
