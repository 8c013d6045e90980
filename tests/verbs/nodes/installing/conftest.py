"""A machine that is this one: an ``ssh`` that hands its command to a shell here, as sshd does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_STAND_IN = """\
#!{python}
import os, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(repr(words) + "\\n")
if "-G" in words:
    print("hostname 127.0.0.1")
    sys.exit(0)
if os.path.exists({fails!r}):
    with open({fails!r}) as said:
        sys.stderr.write(said.read())
    sys.exit(255)
at = words.index("--")
assert len(words) == at + 3, words
environment = {{**os.environ, "HOME": {home!r}}}
os.execve("/bin/sh", ["sh", "-c", words[at + 2]], environment)
"""


class StandIn:
    """An ``ssh`` first on ``$PATH``.

    Args:
        folder: of everything; the machine's home lies in it.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "the home"
        self.log = folder / "log"
        self.fails = folder / "fails"
        self.home.mkdir()
        (folder / "bin").mkdir()
        program = folder / "bin" / "ssh"
        program.write_text(
            _STAND_IN.format(
                python=sys.executable,
                log=str(self.log),
                fails=str(self.fails),
                home=str(self.home),
            )
        )
        program.chmod(0o755)
        self.path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def fail(self, message: str) -> None:
        """End every command as ssh ends when ssh itself fails."""
        self.fails.write_text(message)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    return made
