"""Stage: what of a folder is sent, and what stays at home."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from jupyter_mntrain.launch.project.own_imports import own_imports
from jupyter_mntrain.launch.project.stage import stage_project
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind

WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@lab")


def write(root: Path, *names: str, content: bytes | None = None) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() if content is None else content)
    return root


def names(root: Path) -> list[str]:
    return [one.path for one in stage_project(root).tree.files]


def test_names_folders_and_modes_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "pkg/__init__.py", "pkg/deep/data.bin", content=b"\x00\xff")
    (tmp_path / "train.py").chmod(0o755)
    (tmp_path / "out" / "plots").mkdir(parents=True)
    project = stage_project(tmp_path)
    told = [(one.path, one.is_executable) for one in project.tree.files]
    assert told == [("pkg/__init__.py", False), ("pkg/deep/data.bin", False), ("train.py", True)]
    assert project.tree.folders == ("out/plots",)
    assert len(project.sources) == 1, "one content is read and sent once"
    assert project.tree.size_bytes == 6


def test_what_git_or_mntrain_ignores_stays_at_home(tmp_path: Path) -> None:
    write(
        tmp_path, "a.py", "a.log", "data/big.bin", "data/keep.bin", "runs/x", "sub/b.tmp",
        "sub/runs/y", "__pycache__/a.pyc", ".git/config", "venv/pyvenv.cfg", "venv/bin/python",
        "env/conda-meta/history", "env/bin/python",
    )  # fmt: skip
    (tmp_path / ".gitignore").write_text("*.log\ndata/*\n/runs/\n")
    (tmp_path / ".mntrainignore").write_text("!data/keep.bin\n")
    (tmp_path / "sub" / ".gitignore").write_text("*.tmp\n")
    assert names(tmp_path) == [
        ".gitignore", ".mntrainignore", "a.py", "data/keep.bin", "sub/.gitignore", "sub/runs/y",
    ]  # fmt: skip


def test_patterns_of_the_repository_around_it_hold(tmp_path: Path) -> None:
    write(tmp_path, ".git/config", "train/a.py", "train/a.ckpt", "train/out/b.py")
    (tmp_path / ".gitignore").write_text("*.ckpt\n/train/out\n")
    assert names(tmp_path / "train") == ["a.py"]


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)


def test_what_git_tracks_is_sent_whatever_its_patterns_say(tmp_path: Path) -> None:
    write(
        tmp_path, "a.py", "conf/a.yaml", "conf/b.yaml", "out/deep/kept.txt", "out/run.txt", "c.pyc"
    )
    (tmp_path / ".gitignore").write_text("conf/\nout/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "a.py", "conf/a.yaml", "out/deep/kept.txt", "c.pyc")
    assert names(tmp_path) == [".gitignore", "a.py", "c.pyc", "conf/a.yaml", "out/deep/kept.txt"]
    assert stage_project(tmp_path).tree.left_out == ("conf/b.yaml", "out/run.txt")
    assert names(tmp_path / "conf") == ["a.yaml", "b.yaml"], "it was named, though git ignores it"
    (tmp_path / ".mntrainignore").write_text("a.yaml\n")
    assert "conf/a.yaml" not in names(tmp_path)
    git_folder = tmp_path / ".git"
    (git_folder / "index").write_bytes(b"damaged")
    assert "out/deep/kept.txt" not in names(tmp_path), "without git its patterns hold"


def test_what_git_tracks_is_known_of_submodules_and_of_repositories_of_others(
    tmp_path: Path,
) -> None:
    lib, root = write(tmp_path / "lib", "data/table.bin"), write(tmp_path / "p", "a.py")
    for one in (lib, root):
        git(one, "init", "-q")
    git(lib, "add", ".")
    git(lib, *WHO, "commit", "-qm", "x")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "lib")
    (root / ".gitignore").write_text("*.bin\n")
    sent = [".gitignore", ".gitmodules", "a.py", "lib/data/table.bin"]
    assert names(root) == sent, "what ignores files of a repository says nothing of its submodules"
    git(root, "add", "-f", write(root, "own.bin") / "own.bin")
    (root / "lib" / ".git").write_text("gitdir: nowhere\n")
    assert "own.bin" in names(root), "one submodule is damaged"
    if os.geteuid() == 0:  # git names it "dubious ownership"
        for folder in (root, root / ".git"):
            os.chown(folder, 65534, 65534)
        assert "own.bin" in names(root)


def test_what_is_left_out_is_known(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "data/train.bin", "data/val.bin", "x.log", "venv/pyvenv.cfg", "a.pyc")
    (tmp_path / ".gitignore").write_text("data/\n*.log\nvenv/\n")
    tree = stage_project(tmp_path).tree
    assert tree.left_out == ("data", "x.log")
    assert [tree.leaves_out(one) for one in ("data/train.bin", "x.log", "a.py", "dat")] == [
        True, True, False, False,
    ]  # fmt: skip
    (tmp_path / ".mntrainignore").write_text("!data/train.bin\n")
    assert names(tmp_path) == [".gitignore", ".mntrainignore", "a.py", "data/train.bin"]
    assert stage_project(tmp_path).tree.left_out == ("data/val.bin", "x.log")


def test_links_never_lead_out(tmp_path: Path) -> None:
    root = write(tmp_path / "p", "a.py", "lib/b.py")
    write(tmp_path, "secret.txt", "elsewhere/c.py")
    (root / "inside.py").symlink_to("a.py")
    (root / "again").symlink_to("lib")
    (root / "lib" / "circle").symlink_to("..")
    (root / "out.txt").symlink_to("../secret.txt")
    (root / "outer").symlink_to(tmp_path / "elsewhere")
    (root / "broken").symlink_to("gone")
    project = stage_project(root)
    assert [one.path for one in project.tree.files] == [
        "a.py",
        "again/b.py",
        "inside.py",
        "lib/b.py",
    ]
    outside, odd = project.notes
    assert (outside.kind, odd.kind) == (Kind.NO_FILE, Kind.NO_FILE)
    assert all(name in outside.cause for name in ("out.txt", "outer"))


def test_devices_and_sockets_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        project = stage_project(tmp_path)
    assert [one.path for one in project.tree.files] == ["a.py"]
    (note,) = project.notes
    assert note.kind is Kind.NO_FILE


@pytest.mark.parametrize("name", [".env", "deploy.key", "id_ed25519", "conf/.netrc"])
def test_secrets_are_warned_of_by_name(tmp_path: Path, name: str) -> None:
    (note,) = stage_project(write(tmp_path, "a.py", name)).notes
    assert note.kind is Kind.PRIVATE_FILE
    assert name in note.cause


def test_secrets_are_warned_of_by_content(tmp_path: Path) -> None:
    write(tmp_path, "id_rsa.pub", ".env.example", "a.py")
    assert stage_project(tmp_path).notes == ()
    write(tmp_path, "notes.txt", content=b"-----BEGIN OPENSSH PRIVATE KEY-----\nabc")
    (note,) = stage_project(tmp_path).notes
    assert note.kind is Kind.PRIVATE_FILE
    assert "notes.txt" in note.cause


def test_a_large_project_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    write(tmp_path, "small.py", "weights.bin", content=b"x" * 1000)
    assert stage_project(tmp_path, limit_bytes=2000).tree.size_bytes == 2000
    with pytest.raises(SpecError) as caught:
        stage_project(tmp_path, limit_bytes=1999)
    assert caught.value.kind is Kind.TOO_LARGE
    assert "weights.bin" in caught.value.cause


def test_only_a_folder_can_be_a_project(tmp_path: Path) -> None:
    for path in (tmp_path / "gone", write(tmp_path, "a.py") / "a.py"):
        with pytest.raises(SpecError):
            stage_project(path)


def test_imports_from_the_own_folder_are_seen(tmp_path: Path) -> None:
    write(tmp_path, "utils.py", "pkg/model.py", "data/x.csv", "json.txt")
    source = "import json, data\nfrom pkg.model import Model\ndef f():\n    import utils as u\n"
    assert own_imports(source, tmp_path) == ["pkg", "utils"]
    (tmp_path / "time").mkdir()
    (tmp_path / "time" / "a.py").touch()
    (tmp_path / "os.py").touch()
    assert own_imports("import os, sys, time", tmp_path) == []
    assert own_imports("import_module('pkg.sub')\n__import__('.pkg')", tmp_path) == ["pkg"]
    assert own_imports("from . import x\nimport torch\n", tmp_path) == []
    assert own_imports("not python at all(", tmp_path) == []
