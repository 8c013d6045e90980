"""Completion in shells: what argcomplete's script of a shell gets from a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.command_line.parser import HelpWanted
from jupyter_mntrain.sources.registry import sources
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.completion import FILE, Command, commands
from jupyter_mntrain.verbs.known_names import MOST_JOBS, KeptNames, keep_names
from jupyter_mntrain.verbs.table import RENAMED, TABLE
from scripts.commands import text
from tests.standin.cluster import StandInCluster

LISTED = "\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    """A user whose shell asks in a folder of its own; with the names of the stand-in cluster."""
    for name in ("CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("MNTRAIN_CLUSTER", "lab")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def known(home: Path, cluster: StandInCluster) -> Path:
    keep_names(cluster)
    return home


def offers(line: str) -> list[str]:
    """What a shell offers at the end of a line, as argcomplete's scripts ask."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": LISTED, "COMP_TYPE": "9"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    reading, writing = os.pipe()
    with os.fdopen(reading) as told:
        code = "import os, sys; os.dup2(int(sys.argv[1]), 8); from jupyter_mntrain import cli; "
        code += "sys.argv = ['mntrain']; cli.main()"
        subprocess.run(
            [sys.executable, "-c", code, str(writing)],
            env={**os.environ, **asked},
            pass_fds=[writing],
            check=True,
        )
        os.close(writing)
        return [one for one in told.read().split(LISTED) if one]


def test_verbs_actions_and_options(known: Path) -> None:
    assert offers("mntrain la") == ["launch"]
    assert {"launch", "completion"} <= set(offers("mntrain "))
    assert offers("mntrain --json driver jo") == ["join"]
    assert offers("mntrain launch --mem") == ["--member"]
    assert offers("mntrain jobs --sort d") == ["duration"]
    assert offers("mntrain completion z") == ["zsh"]
    assert offers("mntrain launch a.py --on slurm --parti") == ["--partition"]
    assert offers("mntrain launch a.py --parti") == []


def test_names_are_those_of_the_last_command(known: Path) -> None:
    assert offers("mntrain logs --node wo") == ["wopr"]
    assert offers("mntrain launch --member wopr:1:eno") == ["wopr:1:eno1"]
    assert offers("mntrain attach ") == ["j-7f3a9c21"]
    assert offers("mntrain --cluster other attach ") == []


def test_recipes_fields_settings_and_files(known: Path) -> None:
    Path("tiny.toml").touch()
    assert offers("mntrain launch ti") == ["tiny.toml"]
    assert "1b-1gpu" in offers("mntrain settings 1b")
    assert "train.steps=" in offers("mntrain launch r.toml --set train.ste")
    assert offers("mntrain config cluster.di") == ["cluster.discovery_s"]
    assert offers("mntrain report --output=ti") == ["--output=tiny.toml"]


def test_a_word_in_quotes_stays_in_quotes(known: Path) -> None:
    Path("my recipe.toml").touch()
    assert offers('mntrain launch "my ') == ["my recipe.toml"]
    assert offers("mntrain launch my") == ["my\\ recipe.toml"]


def test_where_nothing_is_known_or_readable_nothing_is_offered(home: Path) -> None:
    assert offers("mntrain attach ") == []
    names = home / "CACHE/mntrain/names"
    names.mkdir(parents=True)
    (names / "lab.json").write_text("[")
    assert offers("mntrain attach ") == []
    assert offers("mntrain no-such-verb --") == []


def test_a_command_leaves_what_it_has_heard(
    home: Path, cluster: StandInCluster, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("jupyter_mntrain.verbs.verb.connect", lambda name, addresses: cluster)
    assert main(["jobs", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    kept = KeptNames(cluster.name)
    assert [one.job_id for one in kept.jobs()] == [job["job_id"]]
    assert {"wopr", "hal"} <= {one.name for one in kept.nodes()}


def test_no_more_jobs_are_kept_than_a_terminal_shows(known: Path, cluster) -> None:
    path = known / f"CACHE/mntrain/names/{cluster.name}.json"
    older = [[f"j-{at:08x}", True] for at in range(2 * MOST_JOBS)]
    path.write_text(json.dumps({"nodes": [], "jobs": older}))
    keep_names(cluster)
    kept = list(KeptNames(cluster.name).jobs())
    assert (len(kept), kept[0].job_id) == (MOST_JOBS, "j-7f3a9c21")


def test_what_completion_reads_is_made_of_the_parsers() -> None:
    assert FILE.read_text() == text(), "it is outdated: python -m scripts.commands"


def every(command: Command, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Command]]:
    found = [(words, command)]
    for name, data in command.choices.items():
        found += every(Command(data), (*words, name))
    return found


@pytest.mark.parametrize(
    ("words", "command"), every(Command(commands()["mntrain"]))[1:], ids=lambda one: str(one)[:40]
)
def test_every_option_offered_is_one_that_its_command_takes(
    words: Sequence[str], command: Command
) -> None:
    for source in ("", *sources()):
        asked = ("--on", source) if source else ()
        if source and command.of(asked) is command:
            continue
        for option in command.of(asked).flags:
            with pytest.raises(HelpWanted):
                parse([*words, *asked, option, "--help"], program="mntrain")
    assert set(commands()["mntrain"]["choices"]) == set(TABLE)
    assert not {" ".join(old) for old in RENAMED} & set(TABLE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_the_shells_own(shell: str, capsys) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "mntrain" in script
    program = shutil.which(shell)
    if program is None:
        return  # what argcomplete prints for it is argcomplete's promise
    subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_bash_completes_with_it(known: Path, capsys, tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "mntrain").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m jupyter_mntrain.cli "$@"\n'
    )
    (tmp_path / "mntrain").chmod(0o755)
    asked = script + (
        'COMP_LINE="mntrain logs --node wo"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9\n'
        '_python_argcomplete mntrain; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash"],
        input=asked,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["wopr"]
