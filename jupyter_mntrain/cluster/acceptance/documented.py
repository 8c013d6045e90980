"""Documented commands: runs the commands of the documentation exactly as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.metrics.acceptance.acceptance_report import DocumentedCommand

LIMIT_S = 600.0
"""A documented command that takes longer than this is ended, and has failed."""

LAST_CHARACTERS: Final = 400
TOO_LONG: Final = 124
"""Exit code of a command that took too long, as ``timeout`` has it."""

COMMANDS: Final = (
    "mntrain nodes",
    "mntrain doctor",
    "mntrain launch quick-check --wait",
    "mntrain plot -o first-run.png",
)
"""The commands in docs/by_hand.md after the nodes have joined. A test compares them."""


def run_documented(
    environment: Mapping[str, str], progress: Progress
) -> Iterator[DocumentedCommand]:
    """Run each command in a shell, in a folder of its own; stop at the first that fails.

    Args:
        environment: names the cluster.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    with tempfile.TemporaryDirectory(prefix="mntrain-accept-") as folder:
        for done, command in enumerate(COMMANDS):
            progress.report(command, done, len(COMMANDS))
            one = _run(command, Path(folder), {**environment, "PATH": path})
            yield one
            if one.exit_code:
                return


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> DocumentedCommand:
    begun_s = time.monotonic()
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()
            said, _ = process.communicate()
            code = TOO_LONG
        except BaseException:
            process.terminate()  # Ctrl-C reaches it, too; of a kernel, only this process
            raise
    took_s = time.monotonic() - begun_s
    return DocumentedCommand(
        command=command,
        exit_code=code,
        took_s=took_s,
        said=said.strip()[-LAST_CHARACTERS:] if code else "",
    )
