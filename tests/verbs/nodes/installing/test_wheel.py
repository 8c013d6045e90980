"""The driver's own wheel: what pip makes of it, and that it is the same each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jupyter_mntrain import __version__
from jupyter_mntrain.verbs.nodes.installing.wheel import PACKAGE, pack


def test_pip_installs_what_runs_here_without_an_index(tmp_path: Path) -> None:
    wheel = pack(tmp_path)
    assert pack(tmp_path).digest == wheel.digest
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    where = tmp_path / "packages"
    words = [*pip, "--no-index", "--no-deps", "--no-compile", "--target", str(where)]
    subprocess.run([*words, str(wheel.path)], check=True)
    installed = where / PACKAGE.name
    for path in PACKAGE.rglob("*"):
        if path.suffix in (".py", ".toml") and "labextension" not in path.parts:
            copy = installed / path.relative_to(PACKAGE)
            assert copy.read_bytes() == path.read_bytes()
    metadata = next(where.glob("jupyter_mntrain-*.dist-info/METADATA")).read_text()
    assert f"\nVersion: {__version__}\n" in metadata
    assert list(where.glob("jupyter_mntrain-*.dist-info/licenses/LICENSE"))
