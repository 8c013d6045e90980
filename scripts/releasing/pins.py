"""Pins: what an installation without extras consists of, each with the hashes of all its files.

pip refuses every file that has another: ``pip install --require-hashes -r requirements.txt``.
torch is not among them, nor what comes with it: which build is right depends on the machine's
driver.

``python -m scripts.releasing.pins`` writes the file again after versions in ``constraints.txt``
have changed, by uv in an environment of its own: uv takes hashes from the index, and downloads no
files (those of torch alone, for all platforms, are many gigabytes). ``UV_DEFAULT_INDEX`` names
another index."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from scripts.releasing.bill import OF_A_BUILD
from scripts.releasing.refusal import Refusal

ROOT = Path(__file__).resolve().parents[2]
HASHED = Path(__file__).with_name("hashed.txt")
APART = frozenset({"setuptools", "torch"})
RENEW = "python -m scripts.releasing.pins"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """The version of each package that a constraints or requirements file pins."""
    return {canonicalize_name(name): version for name, version in _PIN.findall(text)}


def check_pins(hashed: str, constraints: str, names: Iterable[str]) -> None:
    """Refuse pins with hashes that are not those of the tests, or not of what users get."""
    tested, found = pins(constraints), pins(hashed)
    wanted = {name: tested.get(name) for name in map(canonicalize_name, names)}
    if unlike := sorted(dict(wanted.items() ^ found.items()).keys() - APART):
        raise Refusal(f"{HASHED.name} is not up to date for {', '.join(unlike)}. Fix: {RENEW}")


def renew(root: Path = ROOT) -> str:
    """The pins of ``constraints.txt`` that users get, with the hashes that the index tells."""
    with tempfile.TemporaryDirectory() as where:
        venv.create(where, with_pip=True)
        programs = Path(where) / "bin"
        subprocess.run([programs / "pip", "install", "--quiet", "uv>=0.9"], check=True)
        command: list[str | Path] = [
            programs / "uv",
            "pip",
            "compile",
            "--quiet",
            "--generate-hashes",
        ]
        command += ["--no-header", "--no-annotate", "--python", sys.executable]
        command += ["--constraint", root / "constraints.txt", root / "pyproject.toml"]
        made = subprocess.run(command, check=True, cwd=root, stdout=subprocess.PIPE, text=True)
        return without_torch(made.stdout)


def without_torch(text: str) -> str:
    """A requirements file with hashes, less torch and what comes with it."""
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return "".join(one for one in entries if not any(map(_comes_with_torch, pins(one))))


def _comes_with_torch(name: str) -> bool:
    return name in APART or OF_A_BUILD.fullmatch(name) is not None


if __name__ == "__main__":
    HASHED.write_text(renew())
    sys.exit(0)
