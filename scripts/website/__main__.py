"""Site: ``python -m scripts.website``, as ``scripts/docs`` runs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from scripts.releasing.refusal import Refusal
from scripts.website.assembly import Assembly
from scripts.website.loaded import check_loaded
from scripts.website.reference import REFERENCE

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path) -> Path:
    """Build the site; the folder with its pages.

    Raises:
        Refusal: Sphinx is missing or warns, or a page loads something from elsewhere.
    """
    source, site, trees = (root / "build" / name for name in ("site-source", "site", "doctrees"))
    if find_spec("sphinx") is None:
        raise Refusal("Sphinx is not installed. Fix: scripts/docs, which installs it")
    Assembly(root, source).assemble(REFERENCE)
    options = ["--fail-on-warning", "--quiet", "--jobs", "auto"]
    places = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(trees)]
    command = [sys.executable, "-m", "sphinx", *options, *places, str(source), str(site)]
    if subprocess.run(command, cwd=root, check=False).returncode:
        # Of pages that have not changed the next build would not warn again.
        shutil.rmtree(trees, ignore_errors=True)
        raise Refusal("Sphinx warns of the pages above. Fix: correct them in docs/ or in the code")
    check_loaded(site)
    return site


def main() -> int:
    try:
        site = build(ROOT)
    except Refusal as refusal:
        print(f"scripts/docs: {refusal}", file=sys.stderr)
        return 1
    pages = len([*site.rglob("*.html")])
    print(f"{pages} pages: {(site / 'index.html').relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
