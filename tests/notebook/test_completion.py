from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter

from tests.notebook.conftest import Notebook


@pytest.fixture
def complete(notebook: Notebook):
    """A cell with each of the completions that a kernel would answer."""

    def complete(code: str) -> list[str]:
        with provisionalcompleter():
            found = list(notebook.shell.Completer.completions(code, len(code)))
        return [code[: one.start] + one.text for one in found]

    return complete


@pytest.fixture
def offers(complete):
    """The words offered for the word begun."""

    def offers(code: str) -> list[str]:
        return [done.split(" ")[-1].rpartition("\n")[2] for done in complete(code)]

    return offers


def test_verbs(offers):
    assert "launch" in offers("%mntrain ")
    assert offers("%mntrain la") == ["launch"]
    assert offers("%mntrain dry") == []
    assert offers("%%mntrain lau") == ["launch"]


def test_options_of_the_verb_and_of_all(offers):
    assert {"--member", "--wait", "--cluster"} <= set(offers("%mntrain launch --"))
    assert offers("%mntrain launch --mem") == ["--member"]
    assert "--member" not in offers("%mntrain nodes --")


def test_nodes_processes_and_interfaces(offers):
    assert offers("%mntrain logs --node wo") == ["wopr"]
    assert "wopr:1" in offers("%mntrain launch --member wo")
    found = offers("%mntrain launch --member wopr:1:")
    assert "wopr:1:eno1" in found
    assert "wopr:1:eno2" not in found  # it is down


def test_jobs_and_only_running_ones_to_stop(offers, cluster):
    assert offers("%mntrain attach j-") == ["j-7f3a9c21"]
    assert offers("%mntrain stop j-7f") == ["j-7f3a9c21"]
    (job,) = cluster._jobs.values()
    job.become("succeeded")
    assert offers("%mntrain stop j-7f") == []


def test_recipes_scripts_and_folders(offers, tmp_path):
    (tmp_path / "tiny.toml").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "train.py").touch()
    assert set(offers("%mntrain launch ")) == {"tiny.toml", "deep/"}
    assert offers("%mntrain launch deep/") == ["deep/train.py"]


def test_jobs_to_launch_again_and_where_to_export(offers, tmp_path):
    (tmp_path / "kept.toml").touch()
    assert offers("%mntrain launch j-7") == ["j-7f3a9c21"]
    assert offers("%mntrain export j-") == ["j-7f3a9c21"]
    assert offers("%mntrain export --force j-7f3a9c21 --output ke") == ["kept.toml"]
    assert offers("%mntrain export --cluster lab j-7f3a9c21 -o ke") == ["kept.toml"]


def test_recipe_fields(offers):
    assert "train.steps=" in offers("%mntrain launch r.toml --set train.st")


def test_after_an_assignment(offers):
    assert offers("job = %mntrain atta") == ["attach"]


@pytest.mark.parametrize(
    "code", ["mntrain la", "x = 1", "%%mntrain launch\nla", "print('%mntrain')", "%mntrain zzz "]
)
def test_elsewhere_it_keeps_out(offers, code):
    assert not {"launch", "--member", "wopr"} & set(offers(code))


def test_no_network_is_asked(offers, cluster, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a completer asked the network")

    for name in ("participants", "measure", "add", "launch", "dry_run", "job"):
        monkeypatch.setattr(type(cluster), name, refuse)
    for code in ("%mntrain ", "%mntrain attach ", "%mntrain launch --member ", "%mntrain forget "):
        offers(code)


def test_actions_of_a_verb_and_their_options(offers):
    assert offers("%mntrain driver re") == ["restore", "revoke"]
    assert {"join", "run", "install-service"} <= set(offers("%mntrain agent "))
    assert offers("%mntrain agent join --li") == ["--link-capacity", "--listen"]
    assert offers("%mntrain --cluster mine agent of") == ["offer"]


def test_settings(offers):
    assert offers("%mntrain config cluster.di") == ["cluster.discovery_s"]


def test_nothing_is_offered_that_would_end_the_line_or_look_different(offers, tmp_path):
    for name in ("a.toml", "a\nimport os.toml", "a\x1b]0;x\x07.toml", "a\u202elmot.toml"):
        (tmp_path / name).write_text("")
    assert offers("%mntrain launch a") == ["a.toml"]
