"""What the doctor knows of a job before it starts: which modules the nodes have to have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.cluster.preflight.pending_job import pending_job, question_of
from jupyter_mntrain.doctor.check import Unsent
from jupyter_mntrain.launch.project.stage import stage_project
from jupyter_mntrain.model.records.doctor.machine import FoundScript
from jupyter_mntrain.model.records.job import JobSpec, Participant

OWN = {
    "certain": ("import helper", "import pandas", {"pandas": True}),
    "in a function": ("def f():\n    import helper", "import pandas", {"pandas": False}),
    "in one of the helper's": ("import helper", "def f():\n    import wandb", {"wandb": False}),
    "both paths": (
        "import helper\ndef f():\n    import pandas",
        "import pandas",
        {"pandas": True},
    ),
    "in a circle": ("import helper", "import train\nimport pandas", {"pandas": True}),
    "no Python": ("import helper\nimport torch", "def (", {"torch": True}),
}


def spec(files: dict[str, str]) -> JobSpec:
    return JobSpec(entry=("train.py",), participants=(Participant(node="node1"),), files=files)


def modules(job: JobSpec, **how: object) -> dict[str, bool]:
    script = pending_job(job, "node1", **how).script
    assert script is not None
    return {one.what: one.is_certain for one in script.modules}


@pytest.mark.parametrize(("script", "helper", "expected"), OWN.values(), ids=OWN)
def test_modules_that_are_sent_are_read_for_what_they_import(
    script: str, helper: str, expected: dict[str, bool]
):
    assert modules(spec({"train.py": script, "helper.py": helper})) == expected


def test_a_package_of_a_project_is_read(tmp_path: Path):
    (tmp_path / "train.py").write_text("from mine.model import Model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import einops")
    project = stage_project(tmp_path)
    assert modules(spec({}), project=project) == {"einops": True}


def placed(text: str, *arguments: str, **fields: object) -> set[str]:
    """What the nodes are asked for of a script's files, in the folder that it runs in."""
    job = msgspec.structs.replace(spec({}), workdir="/shared", entry=("train.py", *arguments))
    job = msgspec.structs.replace(job, **fields)
    there = FoundScript(name="train.py", text=text, beside=("data.txt",))
    asked = question_of(pending_job(job, "node1", there=there), job, there)
    return {one.path for one in asked.paths if one.use == "input"}


@pytest.mark.parametrize(
    "line",
    [
        "open('data.txt')",
        "open('./data.txt')",
        "Path('data.txt').read_text()",
        "np.load('data.txt')",
        "torch.load(Path('.') / 'data.txt')",
        "load_from_disk('data.txt')",
        "gzip.open('data.txt', 'rt')",
        "print('data.txt'); open('data.txt')",
        "open(sys.argv[1])",
        "load(sys.argv[1])",
    ],
)
def test_what_a_script_opens_by_a_relative_path_is_looked_for_on_the_nodes(line: str):
    assert placed(line, "data.txt") == {"/shared/data.txt"}


@pytest.mark.parametrize(
    "text",
    [
        "open('data.txt', 'w')\nopen('data.txt')",
        "open('data.txt', mode)\nopen('data.txt')",
        "if rank == 0:\n    prepare('data.txt')\nopen('data.txt')",
        "try:\n    download(url, to='data/a')\nexcept OSError:\n    pass\nopen('data/a')",
        "Path('data').mkdir()\nopen('data/a')",
        "subprocess.run(['make'])\nopen('data.txt')",
        "os.chdir(somewhere)\nopen('data.txt')",
        "def save(step):\n    torch.save(model, 'data.txt')\ntorch.load('data.txt')",
        "if os.path.exists('data.txt'):\n    open('data.txt')",
    ],
)
def test_what_a_script_may_make_itself_is_not(text: str):
    assert placed(text) == set()


@pytest.mark.parametrize("path", ["/scratch/a/b.pt", "~/a/b.pt"])
@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("torch.load(P)", True),
        ("if rank == 0:\n    torch.save(model, P)\ndist.barrier()\ntorch.load(P)", False),
        ("def save():\n    torch.save(model, P)\ntorch.load(P)", False),
        ("if rank == 0:\n    prepare(P)\ntorch.load(P)", False),
        ("os.makedirs(os.path.dirname(P))\ntorch.load(P)", False),
        ("subprocess.run(['make', 'data'])\ntorch.load(P)", False),
        ("if not os.path.exists(P):\n    download()\ntorch.load(P)", False),
        ("if not Path(P).is_file():\n    download()\ntorch.load(P)", False),
        ("model.save_pretrained(P)\ntorch.load(f'{P}/x.pt')", False),
        ("torch.save(model, '/elsewhere.pt')\ntorch.load(P)", True),
        ("def main():\n    own = P\n    prepare(own)\n    torch.load(own)\nmain()", False),
    ],
)
def test_what_a_script_may_make_at_an_absolute_path_is_not_asked_for(
    text: str, is_asked: bool, path: str
):
    job = spec({"train.py": f"P = {path!r}\n{text}"})
    asked = question_of(pending_job(job, "node1"), job)
    assert [one.path for one in asked.paths if one.use == "input"] == [path] * is_asked


def test_what_a_module_does_as_a_script_is_nothing_that_its_import_needs():
    helper = "if __name__ == '__main__':\n    import pandas"
    assert modules(spec({"train.py": "import helper", "helper.py": helper})) == {"pandas": False}


@pytest.mark.parametrize(
    "line",
    [
        "open('data/train.bin')",
        "np.memmap(os.path.join('data', 'train.bin'))\nopen(os.path.join('data', 'train.bin'))",
        "open(Path(__file__).parent / 'data' / 'train.bin')",
        "open(Path(__file__).resolve().parents[0] / 'data/train.bin')",
        "open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data', 'train.bin'))",
    ],
)
def test_what_a_script_reads_and_git_ignores_is_named_with_what_sends_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.bin").write_bytes(b"x")
    (tmp_path / "train.py").write_text(line)
    (tmp_path / ".gitignore").write_text("*.bin\nlocal.py\n")
    (tmp_path / "local.py").write_text("")
    monkeypatch.chdir(tmp_path / "data")
    found = pending_job(spec({}), "node1", stage_project(tmp_path)).unsent
    how = f"the line !data/train.bin in {tmp_path / '.mntrainignore'}"
    assert found == {"data/train.bin": Unsent(how)}
    monkeypatch.chdir(tmp_path)
    alone = pending_job(spec({"train.py": f"import local\n{line}"}), "node1").unsent
    assert alone == {
        "data/train.bin": Unsent("--file data/train.bin"),
        "local": Unsent("--file local.py"),
    }


def test_a_hidden_file_that_is_sent_beside_a_project_is_not_lacking(tmp_path: Path):
    (tmp_path / "train.py").write_text("open('.env')")
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / ".gitignore").write_text(".env\n")
    project = stage_project(tmp_path)
    assert set(pending_job(spec({}), "node1", project).unsent) == {".env"}
    assert pending_job(spec({".env": "A=1"}), "node1", project).unsent == {}


def test_what_lies_above_the_script_is_sent_by_a_folder_that_has_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "open(Path(__file__).parent / '../conf.yaml')"
    (tmp_path / "conf.yaml").touch()
    monkeypatch.chdir(made(tmp_path, scripts__train=text) / "scripts")
    alone = pending_job(spec({"train.py": text}), "node1")
    assert alone.unsent == {"../conf.yaml": Unsent("--project ..")}
    below = pending_job(spec({}), "node1", stage_project(tmp_path / "scripts"))
    assert below.unsent == {"../conf.yaml": Unsent(f"--project {tmp_path}")}
    whole = msgspec.structs.replace(spec({}), entry=("scripts/train.py",))
    assert pending_job(whole, "node1", stage_project(tmp_path)).unsent == {}


NANO_GPT = """
dataset = "small"
exec(open("configurator.py").read())
def batch():
    return np.memmap(os.path.join("data", dataset, "train.bin"))
"""


@pytest.mark.parametrize(
    ("text", "unsent"),
    [
        (NANO_GPT.replace("exec", "#"), {"data/small/train.bin": "!data/small/train.bin"}),
        (NANO_GPT, {"data/small/train.bin": "!data/small/train.bin"}),
        (NANO_GPT.replace('"small"', "sys.argv[1]"), {"data": "!data/**"}),
        (NANO_GPT + "torch.save(x, os.path.join('data', 'small', 'train.bin'))", {}),
        ("open('data/small/prepare.py')", {}),
        ("os.listdir('src')", {}),
    ],
)
def test_what_is_ignored_here_and_may_be_read_is_named(
    text: str, unsent: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("data/small/train.bin", "data/small/prepare.py", "src/__pycache__/a.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "src" / "a.py").write_text("")
    (tmp_path / "configurator.py").write_text("")
    (tmp_path / "train.py").write_text("import os, sys, torch\nimport numpy as np\n" + text)
    (tmp_path / ".gitignore").write_text("*.bin\n")
    monkeypatch.chdir(tmp_path)
    found = pending_job(spec({}), "node1", stage_project(tmp_path)).unsent
    assert {path: one.how.split()[2] for path, one in found.items()} == unsent
    assert all(one.part in ("", "data/small/train.bin") for one in found.values())


MORE = ("my own.json", "c.json")


def test_arguments_that_name_what_is_here_and_not_sent_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("conf/a.yaml", "conf/sent.yaml", "data/x.bin", "out/old.pt", "ds.json", *MORE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    arguments = (
        *("--config", "conf/a.yaml", "--data=./data", "--ds", "ds.json", "--output_dir", "./out"),
        *("--other", "conf/sent.yaml", "--folder", "conf", "--hub", "org/model", "--lr", "0.1"),
        *("--url", "https://data/x.bin", "../conf", "/data/x.bin", "data"),
        *("--Train_Dir", "data", "--mode", "data", "--eval_files", "my own.json", "+a.b=c.json"),
    )
    sent = {"train.py": "", "conf/sent.yaml": ""}
    for entry in (("train.py",), ("-m", "pkg.train")):
        job = msgspec.structs.replace(spec(sent), entry=(*entry, *arguments))
        assert pending_job(job, "node1").unsent_arguments == {
            "conf/a.yaml": "--file conf/a.yaml",
            "./data": "--file data",
            "ds.json": "--file ds.json",
            "data": "--file data",
            "my own.json": "--file 'my own.json'",
            "c.json": "--file c.json",
        }
        shared = msgspec.structs.replace(job, workdir="/shared")
        assert pending_job(shared, "node1").unsent_arguments == {}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("load_dotenv()", ".env"),
        ("load_dotenv(find_dotenv())", ".env"),
        ("dotenv.load_dotenv('own.env')", "own.env"),
    ],
)
def test_variables_in_a_file_that_is_here_and_not_sent_are_told(
    call: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    job = spec({"train.py": f"if cold:\n    {call}"})
    assert pending_job(job, "node1").unsent == {}  # nor is it missed where there is none
    (tmp_path / name).write_text("TOKEN=1")
    assert pending_job(job, "node1").unsent == {name: Unsent(f"--file {name}")}
    sent = msgspec.structs.replace(job, files={**job.files, name: "TOKEN=1"})
    assert pending_job(sent, "node1").unsent == {}


def test_a_module_that_is_not_sent_is_asked_for():
    job = msgspec.structs.replace(spec({}), entry=("-m", "pkg.train", "--lr", "1"))
    assert question_of(pending_job(job, "node1"), job).modules == ("pkg", "pkg:train")
    own = msgspec.structs.replace(job, entry=("-m", "jupyter_mntrain.train", "recipe.toml"))
    assert pending_job(own, "node1").script is None


@pytest.mark.parametrize("path", ["src", "./src/", "/opt:src"])
def test_what_lies_on_the_path_of_python_is_sent(path: str, tmp_path: Path):
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "inner" / "__init__.py").write_text("import pandas")
    (tmp_path / "train.py").write_text("from inner import x\nimport numpy")
    job = msgspec.structs.replace(spec({}), environment={"PYTHONPATH": path})
    script = pending_job(job, "node1", stage_project(tmp_path)).script
    assert script is not None
    assert [one.what for one in (*script.modules, *script.names)] == ["numpy", "pandas"]


def made(root: Path, **texts: str) -> Path:
    """A folder of modules; ``__`` stands for a folder."""
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("entry", "environment", "how"),
    [
        (("run.py",), {}, "src"),
        (("run.py",), {"PYTHONPATH": "/opt"}, "src:/opt"),
        (("-m", "mine.train"), {}, "src"),
        (("run.py",), {"PYTHONPATH": "src"}, None),
        (("-m", "mine.train"), {"PYTHONPATH": "src"}, None),
    ],
)
def test_a_package_in_a_folder_that_is_sent_is_found_by_the_path_of_python(
    entry: tuple[str, ...], environment: dict[str, str], how: str | None, tmp_path: Path
):
    project = stage_project(made(tmp_path, run="import mine", src__mine__train="import mine"))
    job = msgspec.structs.replace(spec({}), entry=entry, environment=environment)
    found = pending_job(job, "node1", project)
    assert found.unsent == ({"mine": Unsent(f"--env PYTHONPATH={how}")} if how else {})
    assert found.script is not None
    assert [one.what for one in found.script.modules] == (["mine"] if how else [])


@pytest.mark.parametrize("is_on_path", [False, True])
def test_a_script_of_a_folder_does_not_find_what_lies_beside_that(is_on_path: bool, tmp_path: Path):
    project = stage_project(made(tmp_path, scripts__run="import mine", mine__train=""))
    path = {"PYTHONPATH": "."} if is_on_path else {}
    job = msgspec.structs.replace(spec({}), entry=("scripts/run.py",), environment=path)
    found = pending_job(job, "node1", project)
    assert found.script is not None
    assert [one.what for one in found.script.modules] == ([] if is_on_path else ["mine"])
    assert found.unsent == ({} if is_on_path else {"mine": Unsent("--env PYTHONPATH=.")})


def test_a_package_of_src_that_is_not_sent_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(made(tmp_path, src__mine__train="", tests__other=""))
    found = pending_job(spec({"train.py": "import mine, other"}), "node1").unsent
    assert found == {"mine": Unsent("--project . --env PYTHONPATH=src")}
    module = msgspec.structs.replace(spec({}), entry=("-m", "mine.train"))
    assert pending_job(module, "node1").unsent == {"mine": Unsent("--project src")}


@pytest.mark.parametrize(
    ("helper", "is_told"),
    [
        ("import os\nos.environ.update(read())", False),
        ("import os\ndef setup():\n    os.environ['ROOT'] = '/data'", False),
        ("import os\nroot = os.environ.get('ROOT')", True),
        ("import os\nos.environ['OTHER'] = '1'", True),
        ("from dotenv import load_dotenv\nload_dotenv()", False),
    ],
)
@pytest.mark.parametrize("at", ["helper", "helper__deep__inner"])
def test_variables_that_modules_of_the_job_may_set_are_not_lacking(
    helper: str, is_told: bool, at: str, tmp_path: Path
):
    text = "import os, helper\nos.environ['ROOT']"
    project = stage_project(made(tmp_path, train=text, **{at: helper}))
    script = pending_job(spec({}), "node1", project).script
    assert script is not None
    assert [one.what for one in script.variables] == ["ROOT"] * is_told


def test_the_package_of_a_module_may_set_variables(tmp_path: Path):
    text = "import os\nfrom . import conf\nos.environ['ROOT']"
    setting = "import os\nos.environ.update(read())"
    project = stage_project(made(tmp_path, pkg__train=text, pkg__conf=setting))
    job = msgspec.structs.replace(spec({}), entry=("-m", "pkg.train"))
    script = pending_job(job, "node1", project).script
    assert script is not None
    assert script.variables == ()


@pytest.mark.parametrize(
    ("script", "helper"),
    [
        ("import sys\nsys.path.insert(0, found())\nimport late, mine", ""),
        ("import site\nsite.addsitedir(found())\nimport late, mine", ""),
        ("import helper\nimport late, mine", "import sys\nsys.path.append(found())"),
    ],
)
def test_modules_that_may_be_found_later_are_not_certain(script: str, helper: str, tmp_path: Path):
    project = stage_project(made(tmp_path, train=script, helper=helper, deps__mine__a=""))
    found = modules(spec({}), project=project)
    assert "mine" not in found
    assert found["late"] is False


def test_a_folder_named_like_a_module_that_python_has_is_none_of_the_job(tmp_path: Path):
    project = stage_project(made(tmp_path, train="import time, os", time__a="", os__a=""))
    assert modules(spec({}), project=project) == {"time": True, "os": True}


@pytest.mark.parametrize(
    ("entry", "hides"),
    [
        (("src/train.py",), ("platform.py", "torch")),
        (("train.py",), ("logging.py", "random.py")),
        (("src/random.py",), ("platform.py", "torch")),
        (("-m", "src.train"), ("logging.py", "random.py")),
    ],
)
def test_modules_of_python_that_lie_beside_the_script_are_named(
    entry: tuple[str, ...], hides: tuple[str, ...], tmp_path: Path
):
    (tmp_path / "src" / "torch").mkdir(parents=True)
    (tmp_path / "src" / "json").mkdir()
    beside = ("train", "random", "logging", "utils")
    below = ("train", "platform", "torch/__init__", "deep")
    names = (*beside, *(f"src/{one}" for one in below))
    for name in (*(f"{one}.py" for one in names), "src/json/data.txt", "numpy.txt"):
        (tmp_path / name).write_text("")
    if entry == ("src/random.py",):
        (tmp_path / "src" / "random.py").write_text("")
    job = msgspec.structs.replace(spec({}), entry=entry)
    assert pending_job(job, "node1", stage_project(tmp_path)).hides == hides


def test_what_is_nowhere_is_named_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert pending_job(spec({"train.py": "open('a.bin')"}), "node1").unsent == {"a.bin": Unsent()}


def test_arguments_that_name_a_file_are_looked_for_but_for_what_it_makes():
    words = ("--config", "conf.yaml", "--out=run.json", "--resume", "a.pt", "--lr", "1e-3", "b.csv")
    assert placed("", *words) == {"/shared/conf.yaml", "/shared/b.csv"}
    assert placed("open('sent.txt')", files={"sent.txt": ""}) == set()


def test_a_script_of_a_folder_of_the_nodes_may_import_what_lies_beside_it():
    there = FoundScript(name="train.py", text="import helper, pandas", beside=("helper.py",))
    job = msgspec.structs.replace(spec({}), workdir="/shared")
    assert modules(job, there=there) == {"pandas": True}
    asked = question_of(pending_job(job, "node1", there=there), job, there)
    # Each node is still asked whether the script is there.
    assert [(one.use, one.path) for one in asked.paths] == [
        ("working directory", "/shared"),
        ("script", "/shared/train.py"),
    ]


def test_variables_that_are_set_here_and_not_sent_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    for name in ("DATA_ROOT", "RUN_NAME", "SENT", "GIVEN", "HOME", "SLURM_JOB_ID", "MADE", "RANK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("EMPTY", "")
    text = (
        "import os\nos.environ['DATA_ROOT']\nos.environ['MADE'] = '2'\n"
        "[os.getenv('RUN_NAME', 'x'), os.environ.get('SENT'), os.getenv('GIVEN'), os.getenv('HOME')"
        ", os.getenv('SLURM_JOB_ID'), os.getenv('EMPTY'), os.getenv('NOT_HERE'), os.getenv('MADE')"
        ", os.getenv('RANK')]\n"
    )
    job = msgspec.structs.replace(
        spec({"train.py": text}), environment={"SENT": "2"}, from_environment=("GIVEN",)
    )
    ahead = pending_job(job, "node1")
    assert ahead.set_here == {"DATA_ROOT", "RUN_NAME"}
    assert question_of(ahead, job).variables == ("DATA_ROOT", "RUN_NAME")
