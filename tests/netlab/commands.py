"""Commands: runs ``ip`` and similar programs; their errors become one line."""

from __future__ import annotations

import subprocess


class LabError(RuntimeError):
    """The lab could not be made or changed; the message says what and why."""


def ip(*words: str) -> str:
    return run("ip", *words)


def in_namespace(namespace: str, *words: str) -> str:
    """``ip`` on the interfaces of a namespace."""
    return run("ip", "-n", namespace, *words)


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {' '.join(done.stderr.split())}")
    return done.stdout
