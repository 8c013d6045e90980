"""Where a token is read from, and where it must not be."""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path

import pytest

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.command_line.token_input import (
    add_token_arguments,
    piped,
    read_token_text,
)
from jupyter_mntrain.model.errors import SpecError
from tests.wording import says


def read(*words: str, program: str = "mntrain agent join") -> str:
    parser = Parser(program)
    add_token_arguments(parser)
    return read_token_text(parser.parse(words, argparse.Namespace()), program)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What a person was asked; they paste a token."""
    prompts: list[str] = []
    monkeypatch.setattr("getpass.getpass", lambda prompt: prompts.append(prompt) or "pasted")
    return prompts


@pytest.mark.parametrize("words", [(), ("-",)])
def test_a_pipe_is_read(monkeypatch, asked, words):
    monkeypatch.setattr("sys.stdin", io.StringIO("piped\nmore\n"))
    assert read(*words) == "piped\n"
    assert asked == []


def test_a_person_is_asked_without_echo(monkeypatch, asked):
    monkeypatch.setattr("sys.stdin", Terminal("typed ahead\n"))
    assert read() == "pasted"
    assert len(asked) == 1


def test_in_a_notebook_the_page_asks(monkeypatch, asked):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert read(program="%mntrain driver join") == "pasted"


def test_a_notebook_that_nobody_watches_is_told_of_the_file(monkeypatch):
    def refuse(prompt: str) -> str:
        raise NotImplementedError(prompt)

    monkeypatch.setattr("getpass.getpass", refuse)
    with pytest.raises(SpecError) as error:
        read(program="%mntrain driver join")
    assert says("--token-file FILE", error.value.fix)


def test_a_file_is_read(tmp_path: Path):
    (tmp_path / "token").write_text("kept\n")
    (tmp_path / "token").chmod(0o600)
    assert read("--token-file", str(tmp_path / "token")) == "kept\n"
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(SpecError):
            read("--token-file", str(wrong))
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError):
        read("--token-file", str(tmp_path / "token"))


@pytest.mark.parametrize(
    ("mode", "is_ours", "is_private"),
    [
        (0o400, True, True),
        (0o640, True, False),
        (0o604, True, False),
        (0o440, False, True),
        (0o444, False, False),
    ],
)
def test_a_file_that_others_can_read_is_no_secret(
    tmp_path: Path, monkeypatch, mode: int, *, is_ours: bool, is_private: bool
):
    path = tmp_path / "token"
    path.write_text("kept\n")
    path.chmod(mode)
    if not is_ours:
        monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    if is_private:
        assert read("--token-file", str(path)) == "kept\n"
        return
    with pytest.raises(SpecError) as error:
        read("--token-file", str(path))
    assert str(path) in error.value.cause


@pytest.mark.parametrize("program", ["mntrain agent join", "%mntrain driver join"])
def test_a_token_among_the_words_is_refused_and_not_repeated(program):
    with pytest.raises(SpecError) as error:
        read("mntrain-secret", program=program)
    assert "mntrain-secret" not in str(error.value)
    assert says(program, error.value.fix)


def test_the_line_to_paste_shows_the_token_to_no_process():
    lists_arguments = "{ cat; cat /proc/[0-9]*/cmdline 2>/dev/null; true; }"
    line = piped("mntrain-secret", lists_arguments)
    done = subprocess.run(["sh"], input=line, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mntrain-secret\n")
    assert done.stdout.count("mntrain-secret") == 1
