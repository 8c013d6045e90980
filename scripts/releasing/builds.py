"""Builds: wheel and sdist of a commit, from a clean clone, the same bytes each time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from scripts.releasing.project_urls import origin
from scripts.releasing.refusal import Refusal


def head(root: Path) -> tuple[str, str]:
    """The commit that is checked out, and its Unix time, which all files in the archives have."""
    command = ["git", "log", "-1", "--format=%H %ct"]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    commit, time = told.stdout.split()
    return commit, time


def build(root: Path, work: Path, commit: str, time: str) -> Path:
    """Build a commit in a clone below ``work``; the folder with the packages."""
    source, packages = work / "source", work / "packages"
    clone = ["git", "clone", "--quiet", "--local", "--no-checkout", str(root), str(source)]
    subprocess.run(clone, check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=source, check=True)
    if remote := origin(root):
        # A clone of a clone: the packages tell whence the first one came.
        subprocess.run(["git", "remote", "set-url", "origin", remote], cwd=source, check=True)
    # Installed by lock file and hash; hard links, since they are many.
    for installed in ("node_modules", ".yarn"):
        shutil.copytree(
            root / "labextension" / installed,
            source / "labextension" / installed,
            symlinks=True,
            copy_function=os.link,
        )
    tools = Path(sys.executable).parent
    variables = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": time,
    }
    extension = source / "labextension"
    for command, where in (
        (["jlpm", "build:prod"], extension),
        ([sys.executable, "-m", "hatchling", "build", "-d", str(packages)], source),
    ):
        done = subprocess.run(
            command, cwd=where, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Refusal(f"{' '.join(command)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return packages


def members(archive: Path) -> dict[str, str]:
    """Hash of each file in a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {one: hashlib.sha256(opened.read(one)).hexdigest() for one in opened.namelist()}
    with tarfile.open(archive) as opened_tar:
        files = [one for one in opened_tar.getmembers() if one.isfile()]
        return {
            one.name: hashlib.sha256(opened_tar.extractfile(one).read()).hexdigest()  # type: ignore[union-attr]
            for one in files
        }


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_same(first: Path, second: Path) -> dict[str, str]:
    """Hash of each archive in two folders.

    Raises:
        Refusal: an archive differs, or is in one of them only.
    """
    hashes = [
        {one.name: sha256(one) for one in sorted(folder.iterdir())} for folder in (first, second)
    ]
    if hashes[0] == hashes[1]:
        return hashes[0]
    told = []
    for name in sorted(hashes[0].keys() | hashes[1].keys()):
        if hashes[0].get(name) == hashes[1].get(name):
            continue
        if name not in hashes[0] or name not in hashes[1]:
            told.append(f"{name} was built once only")
            continue
        one, other = members(first / name), members(second / name)
        files = sorted(
            file for file in one.keys() | other.keys() if one.get(file) != other.get(file)
        )
        told.append(f"{name}: {', '.join(files[:5]) or 'order or times of its files'}")
    raise Refusal(
        f"two builds differ in {'; '.join(told)}. Fix: build without time, path and order"
    )
