"""ssh: runs commands on a machine through the system's ssh, and explains its errors."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.nodes.installing.target import SshTarget

CONNECT_S = 10.0
"""Timeout for connecting to a host by ssh."""
FAILED = 255
"""ssh's exit code when ssh itself fails; no command of ours ends with it."""

_OPTIONS = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", f"ConnectTimeout={max(1, round(CONNECT_S))}"),
    # A cable that is pulled while packages are installed ends the command within a minute.
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=4"),
)


class SshMeaning(NamedTuple):
    """What a message of ssh means: ``{to}`` is the destination, ``{host}`` the host."""

    pattern: str
    kind: Kind
    cause: str
    fix: str


MEANINGS = (
    SshMeaning(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        Kind.HOST_KEY,
        cause="its host key is not the one that this machine knows",
        fix="if the machine was reinstalled, compare the key there, then: ssh-keygen -R {name}",
    ),
    SshMeaning(
        r"Host key verification failed|No \S+ host key is known",
        Kind.HOST_KEY,
        cause="this machine does not know its host key yet",
        fix="log in once by hand, and compare the key: {ssh}",
    ),
    SshMeaning(
        r"Permission denied|Too many authentication failures|No supported authentication|"
        r"no matching (host key|key exchange)",
        Kind.NO_LOGIN,
        cause="ssh cannot log in there without a password",
        fix="copy a key with ssh-copy-id {port}{to}, or load yours with ssh-add; try {ssh} true",
    ),
    SshMeaning(
        r"Could not resolve hostname",
        Kind.UNREACHABLE,
        cause="no machine of that name was found",
        fix="check the name, or give the address: user@192.168.1.11",
    ),
    SshMeaning(
        r"Connection refused",
        Kind.CONNECTION_REFUSED,
        cause="it runs, but no ssh server answers at that port",
        fix="start one there (apt-get install openssh-server), or give its port: {to}:PORT",
    ),
    SshMeaning(
        r"timed out|No route to host|Network is unreachable|Host is down",
        Kind.UNREACHABLE,
        cause="it does not answer",
        fix="check that it is on, the cable and the address; a firewall may drop ssh, too",
    ),
    SshMeaning(
        r"Connection (closed|reset)|kex_exchange_identification|Broken pipe|not responding",
        Kind.BROKEN_OFF,
        cause="the ssh connection broke off",
        fix="try again; running it twice does no harm",
    ),
)


class Said(NamedTuple):
    """The output and exit code of a command on a host."""

    code: int
    out: str
    err: str


class Ssh:
    """Runs commands on one machine.

    Only the command line is ours: keys, ports, jumps and host keys are the user's configuration.

    Args:
        program: ``ssh``, as a shell finds it.
    """

    def __init__(self, target: SshTarget, program: str = "ssh") -> None:
        self.target = target
        self._program = program

    def words(self, command: str) -> list[str]:
        """Return the local command line that runs a shell command there."""
        port = ("-p", str(self.target.port)) if self.target.port else ()
        return [self._program, *_OPTIONS, *port, "--", self.target.destination, command]

    def run(self, command: str, *, stdin: Path | bytes | None = None, timeout_s: float) -> Said:
        """Run a command there.

        Args:
            stdin: a file, or what it reads.

        Raises:
            NodeError: ssh failed, or the command takes too long.
        """
        try:
            done = self._run(command, stdin, timeout_s)
        except FileNotFoundError:
            raise self._error(
                Kind.NO_SSH,
                "this machine has no ssh command",
                "install it here: apt-get install openssh-client",
            ) from None
        except subprocess.TimeoutExpired:
            raise self._error(
                Kind.NO_ANSWER,
                f"a command did not end within {timeout_s:g} s: {command}",
                "check the load and the disks of that machine, then try again",
            ) from None
        said = Said(done.returncode, _text(done.stdout), _text(done.stderr))
        if said.code == FAILED:
            raise self.explained(said.err)
        return said

    def _run(
        self, command: str, stdin: Path | bytes | None, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        with tempfile.TemporaryFile() if not isinstance(stdin, Path) else stdin.open("rb") as given:
            if isinstance(stdin, bytes):
                given.write(stdin)
                given.seek(0)
            return subprocess.run(
                self.words(command),
                stdin=given,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )

    def explained(self, messages: str) -> NodeError:
        """Return the error for what ssh printed."""
        port = f"-p {self.target.port} " if self.target.port else ""
        to = self.target.destination
        host = self.target.host
        words = {
            "to": to,
            "port": port,
            "ssh": f"ssh {port}{to}",
            "name": shlex.quote(f"[{host}]:{self.target.port}") if port else host,
        }
        for meaning in MEANINGS:
            if re.search(meaning.pattern, messages):
                return self._error(meaning.kind, meaning.cause, meaning.fix.format(**words))
        last = (messages.strip().splitlines() or ["no message"])[-1]
        return self._error(Kind.NO_SSH, f"ssh failed: {last}", f"try by hand: {words['ssh']}")

    def hostname(self) -> str:
        """Return the host that ssh connects to, which its configuration may rename."""
        words = [self._program, "-G", *self.words("")[1:-1]]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=CONNECT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return self.target.host
        found = re.search(r"^hostname (\S+)$", done.stdout, re.MULTILINE)
        return found[1] if found else self.target.host

    def _error(self, kind: Kind, cause: str, fix: str) -> NodeError:
        return NodeError(cause, kind=kind, fix=fix, node=str(self.target))


def shown_words(words: Sequence[str]) -> str:
    """Quote a command line for a shell."""
    return shlex.join(words)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
