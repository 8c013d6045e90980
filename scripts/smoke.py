"""Smoke: installs, joins, accepts and leaves on real machines; a failure leaves one archive."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

MNTRAIN = (sys.executable, "-m", "jupyter_mntrain.cli")
INSTALL = (*MNTRAIN, "install", "--without-systemd")
"""It is to leave nothing that starts at boot."""
NODE = '"${XDG_DATA_HOME:-$HOME/.local/share}/mntrain/env/bin/mntrain"'
"""Where ``mntrain install`` puts the command, for the user there."""
LEAVE = f"test -x {NODE} || exit 0; {NODE} agent remove-service && {NODE} agent leave"
LOGS = 'tail -n 2000 "${XDG_STATE_HOME:-$HOME/.local/state}"/mntrain/nodes/*/*.log'
KEYS = "config"
SHOWN_LINES = 8


class Smoke:
    """One run; everything that it was told lies in a folder.

    Args:
        hosts: as ssh knows them.
        folder: for what each step printed.
    """

    def __init__(self, hosts: list[str], folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        # A cluster for this run only: its keys go with it.
        own = {"MNTRAIN_CLUSTER": f"smoke-{secrets.token_hex(3)}"}
        self._environment = os.environ | own | {"XDG_CONFIG_HOME": str(folder / KEYS)}

    def run(self, options: list[str]) -> bool:
        """All steps; what was begun is undone whatever happens."""
        accept = (*MNTRAIN, "accept", "--output", str(self.folder / "accept"), *options)
        has_left = []
        try:
            works = self._do("install", *INSTALL, *self.hosts) and self._do("accept", *accept)
        finally:
            for name in ("nodes", "jobs", "doctor"):
                self._do(name, *MNTRAIN, name, "--json")
            for number, host in enumerate(self.hosts, 1):
                self._ssh(f"logs-{number}", host, LOGS)
                has_left.append(self._ssh(f"leave-{number}", host, LEAVE))
        return works and all(has_left)

    def pack(self, archive: Path) -> None:
        """Everything but the cluster's keys."""
        name = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive, "w:gz") as file:
            for path in sorted(self.folder.iterdir()):
                if path.name != KEYS:
                    file.add(path, f"{name}/{path.name}")

    def _do(self, name: str, *command: str) -> bool:
        """Run a step; returns whether it succeeded."""
        say(f"… {name}")
        began = time.monotonic()
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment,
                check=False,
            )
        mark = "✕" if done.returncode else "✓"
        say(f"{mark} {name}, {time.monotonic() - began:.0f} s")
        if done.returncode:
            lines = log.read_text(errors="replace").splitlines()
            say("\n".join(f"    {line}" for line in lines[-SHOWN_LINES:]))
        return not done.returncode

    def _ssh(self, name: str, host: str, command: str) -> bool:
        machine, _, port = host.partition(":")
        to = (*(("-p", port) if port else ()), machine)
        return self._do(name, "ssh", "-o", "BatchMode=yes", *to, command)


def say(text: str) -> None:
    print(text, flush=True)


def main(words: list[str]) -> int:
    at = words.index("--") if "--" in words else len(words)
    hosts, options = words[:at], words[at + 1 :]
    with tempfile.TemporaryDirectory(prefix="mntrain-smoke-") as made:
        folder = Path(made)
        smoke = Smoke(hosts, folder)
        if smoke.run(options):
            shutil.copy(folder / "accept.json", "smoke.json")
            say("All of it works; the figures are in smoke.json.")
            return 0
        archive = Path(time.strftime("smoke-%Y%m%d-%H%M%S.tar.gz"))
        smoke.pack(archive)
        say(f"Something failed. What was said is in {archive}: attach it to a report.")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
