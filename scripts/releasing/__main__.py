"""Release: ``python -m scripts.releasing [--dry-run]``, as ``scripts/release`` runs it."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jupyter_mntrain
from scripts.releasing.bill import PACKAGE, bundled, check_bill, environment, needed, released
from scripts.releasing.builds import build, check_same, head
from scripts.releasing.bundle import check_hosts, check_notice
from scripts.releasing.licenses import check_licenses
from scripts.releasing.pins import HASHED, check_pins
from scripts.releasing.refusal import Refusal

ROOT = Path(__file__).resolve().parents[2]


def check_named(version: str, root: Path) -> None:
    """Refuse a commit without the tag of this version or its date, or with changes next to it."""
    git = ["git", "-C", str(root)]
    tags = subprocess.run(
        [*git, "tag", "--points-at", "HEAD"], capture_output=True, text=True, check=True
    )
    if f"v{version}" not in tags.stdout.split():
        raise Refusal(f"this commit is not tagged v{version}. Fix: tag it, or use --dry-run")
    changed = subprocess.run(
        [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    if changed.stdout:
        raise Refusal(
            "there are changes that are not committed. Fix: commit them, or use --dry-run"
        )
    dated = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(dated, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise Refusal(f"CHANGELOG.md has no date for {version}. Fix: ## [{version}] - YYYY-MM-DD")


def release(root: Path, version: str, *, dry_run: bool) -> None:
    if not dry_run:
        check_named(version, root)
    check_pins(
        HASHED.read_text(), (root / "constraints.txt").read_text(), needed().keys() - {PACKAGE}
    )
    with tempfile.TemporaryDirectory() as where:
        print("building twice", flush=True)
        commit, time = head(root)
        first = build(root, Path(where) / "first", commit, time)
        second = build(root, Path(where) / "elsewhere" / "second", commit, time)
        hashes = check_same(first, second)
        extension = first.parent / "source/jupyter_mntrain/labextension"
        third_party = extension / "static/third-party-licenses.json"
        check_hosts(extension)
        check_notice((root / "NOTICE").read_text(), third_party)
        print("listing what users get", flush=True)
        bundler = json.loads(
            (root / "labextension/node_modules/@rspack/core/package.json").read_text()
        )
        inside = bundled(third_party, {"@rspack/core": bundler["version"]})
        bill = released(environment(root), version, inside)
        check_bill(bill)
        licenses = check_licenses(bill["components"])
        write(root / "release", first, bill, licenses, hashes)
    print(f"{len(licenses)} packages with accepted licenses; release/ has:")
    print(*(f"{hash_}  {name}" for name, hash_ in hashes.items()), sep="\n")


def write(
    folder: Path,
    packages: Path,
    bill: dict[str, object],
    licenses: dict[str, str],
    hashes: dict[str, str],
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(packages, folder / "packages")
    (folder / "sbom.cdx.json").write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")
    lines = (
        f"{name}: {told}\n"
        for name, told in sorted(licenses.items(), key=lambda one: one[0].lower())
    )
    shutil.copy(HASHED, folder / "requirements.txt")
    (folder / "licenses.txt").write_text("".join(lines))
    sums = (f"{hash_}  packages/{name}\n" for name, hash_ in hashes.items())
    (folder / "SHA256SUMS").write_text("".join(sums))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="any commit, without a tag")
    args = parser.parse_args()
    try:
        release(ROOT, jupyter_mntrain.__version__, dry_run=args.dry_run)
    except Refusal as refusal:
        print(f"scripts/release: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
