"""Pins: what an installation without extras consists of, each with the hashes of all its files.

pip refuses every file that has another: ``pip install --require-hashes -r requirements.txt``.
torch is not among them, nor setuptools, which comes with it: which build is right depends on the
machine's driver.

``python -m scripts.releasing.pins`` writes the file anew after versions in ``constraints.txt`` have
changed, by pip-compile in an environment of its own. It uses the index that pip uses.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

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
        programs, made = Path(where) / "bin", Path(where) / "made.txt"
        subprocess.run([programs / "pip", "install", "--quiet", "pip-tools>=7.5"], check=True)
        quiet = [f"--no-{one}" for one in ("header", "annotate")]
        quiet += [f"--no-emit-{one}" for one in ("index-url", "trusted-host", "find-links")]
        command: list[str | Path] = [programs / "pip-compile", "--quiet", "--generate-hashes"]
        command += [
            "--allow-unsafe",
            "--strip-extras",
            *quiet,
            "--constraint",
            root / "constraints.txt",
        ]
        command += ["--output-file", made, root / "pyproject.toml"]
        subprocess.run(command, check=True, cwd=root)
        return without(made.read_text(), APART)


def without(text: str, names: frozenset[str]) -> str:
    """A requirements file with hashes, less some packages and its comments."""
    said = re.sub(r"^\s*(#.*)?\n", "", text, flags=re.MULTILINE)
    entries = re.split(r"^(?=[A-Za-z0-9])", said, flags=re.MULTILINE)
    return "".join(one for one in entries if pins(one).keys().isdisjoint(names))


if __name__ == "__main__":
    HASHED.write_text(renew())
    sys.exit(0)
