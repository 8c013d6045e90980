"""Stage: reads the files of a project on the driver's machine, and hashes them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from jupyter_mntrain.launch.project.ignoring import IgnoreRules
from jupyter_mntrain.launch.project.tree import (
    MOST_FILES,
    MOST_LEFT_OUT,
    Tree,
    TreeFile,
    check_tree,
    encode_tree,
    sha256_of,
    too_many_files,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.model.whereabouts import in_home

LIMIT_BYTES = tunables.size("projects.limit_bytes")

NAMED = 3
"""Most files that a sentence names."""

_SECRET_NAMES = (
    *(".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa*"),
    *("id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".git-credentials", ".pypirc"),
    *("credentials", "credentials.json", "secrets.*", "*.keystore", "*.jks", ".npmrc"),
)
_NO_SECRETS = ("*.pub", ".env.example", ".env.template", ".env.sample")
_KEY_MARK = b"PRIVATE KEY-----"
_HEAD_BYTES = 4096


class Found(NamedTuple):
    """A file to send: its path in the project, and its local path."""

    name: str
    path: Path
    size_bytes: int
    is_executable: bool


class Listing(NamedTuple):
    """The contents of a folder, with notes for the user."""

    files: tuple[Found, ...]
    folders: tuple[str, ...]
    notes: tuple[Problem, ...]
    left_out: tuple[str, ...] = ()


class StagedProject(Record, frozen=True):
    """A project that is ready to be sent.

    Args:
        root: where it was read; for people.
        content: the encoded tree.
        sources: a file with each content, by hash.
        notes: what to tell before the start: secrets, links that are left out.
    """

    root: Path
    tree: Tree
    content: bytes
    sources: Mapping[str, Path]
    notes: tuple[Problem, ...] = ()

    @property
    def sha256(self) -> str:
        return sha256_of(self.content)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.path for one in self.tree.files)

    @property
    def shown_size(self) -> str:
        """The number of files and their size, for people."""
        count = len(self.tree.files)
        return f"{count} file{'s' * (count != 1)}, {rough_size(self.tree.size_bytes)}"


def stage_project(root: Path, *, limit_bytes: int = LIMIT_BYTES) -> StagedProject:
    """Read and hash the files below a folder, without those that are ignored.

    Raises:
        SpecError: it is not a folder, is too large, or a file cannot be read.
    """
    return staged(root, list_folder(root), limit_bytes=limit_bytes)


def with_project(
    spec: JobSpec, project: str | os.PathLike[str] | StagedProject | None
) -> tuple[JobSpec, StagedProject | None]:
    """Return the spec of a job with a project, and the project, which is read if it is a folder.

    Raises:
        SpecError: as for :func:`stage_project`; or the job's script is not in it.
    """
    if project is None:
        return spec, None
    if not isinstance(project, StagedProject):
        project = stage_project(in_home(project))
    spec = msgspec.structs.replace(spec, project=project.sha256)
    script = spec.entry[0] if spec.entry else ""
    is_sent = script in spec.files or str(PurePosixPath(script)) in project.names
    if not is_sent and not spec.runs_program and script not in ("", "-m") and script[0] != "/":
        raise SpecError(
            f"the script {script!r} is not in the project {project.root}",
            fix="name a script in it, by its path from there; or check what .gitignore and "
            ".mntrainignore leave out",
        )
    return spec, project


def list_folder(root: Path, *, is_whole: bool = False) -> Listing:
    """List the files below a folder, without those that are ignored. Nothing is read yet.

    Symbolic links within it become copies; those that lead elsewhere are left out.

    Args:
        is_whole: also what ``.gitignore`` names.

    Raises:
        SpecError: it is not a folder, cannot be read, or has too many files.
    """
    root = root.resolve()
    if not root.is_dir():
        raise SpecError(f"{root}: not a folder", fix="name the folder of the project")
    reader = _FolderReader(root)
    reader.read(root, "", IgnoreRules(root, is_whole=is_whole), frozenset())
    left_out = tuple(reader.left_out)
    return Listing(tuple(reader.files), tuple(reader.folders), tuple(reader.notes()), left_out)


def staged(root: Path, listing: Listing, *, limit_bytes: int = LIMIT_BYTES) -> StagedProject:
    """Read and hash listed files.

    Raises:
        SpecError: they are too large together, a file cannot be read, or two have one name.
    """
    _refuse_too_large(listing.files, limit_bytes)
    sources: dict[str, Path] = {}
    secrets: list[str] = []
    files = []
    for one in listing.files:
        sha256, size, is_secret = _hashed(one)
        sources[sha256] = one.path
        files.append(TreeFile(one.name, sha256, size, one.is_executable))
        if is_secret:
            secrets.append(one.name)
    sent = {one.name for one in listing.files}
    left_out = [one for one in listing.left_out if one not in sent]
    tree = Tree(tuple(files), listing.folders, tuple(left_out[:MOST_LEFT_OUT]))
    check_tree(tree)
    notes = (*listing.notes, *_secret_notes(secrets))
    return StagedProject(root, tree, encode_tree(tree), sources, notes)


class _FolderReader:
    """Collects the files below a root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.files: list[Found] = []
        self.folders: list[str] = []
        self.left_out: list[str] = []
        """Ignored paths, except those that every project has, such as caches."""
        self._outside: list[str] = []
        self._odd: list[str] = []

    def read(self, folder: Path, prefix: str, rules: IgnoreRules, above: frozenset[Path]) -> bool:
        """Read a folder; return whether anything in it is sent.

        Args:
            above: the real paths of the folders that lead here: a link to one of them is a circle.
        """
        real = folder.resolve()
        rules, before = rules.entered(folder), len(self.files) + len(self.folders)
        for entry in sorted(_entries(folder), key=lambda one: one.name):
            name, path = f"{prefix}{entry.name}", folder / entry.name
            kind = self._kind_of(entry, path, name)
            if kind is None:
                continue
            is_folder = kind == "folder"
            if rules.ignores(path, is_folder=is_folder):
                if not rules.is_usual(path, is_folder=is_folder):
                    self.left_out.append(name)
                continue
            if kind == "folder":
                target = path.resolve()
                if target == real or target in above:
                    self._odd.append(name)
                elif not self.read(path, f"{name}/", rules, above | {real}):
                    self.folders.append(name)
            else:
                self._add(name, path)
            if len(self.files) + len(self.folders) > MOST_FILES:
                raise too_many_files(len(self.files) + len(self.folders))
        return len(self.files) + len(self.folders) > before

    def _kind_of(self, entry: os.DirEntry[str], path: Path, name: str) -> str | None:
        """Return ``folder`` or ``file``; note what cannot be sent, and return ``None``."""
        if not is_unicode(entry.name):
            self._odd.append(ascii(name))
            return None
        if entry.is_symlink() and not path.resolve().is_relative_to(self._root):
            self._outside.append(name)
            return None
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "file"
        self._odd.append(name)  # a socket, a device, a broken link
        return None

    def _add(self, name: str, path: Path) -> None:
        told = path.stat()
        executable = bool(told.st_mode & stat.S_IXUSR)
        self.files.append(Found(name, path, told.st_size, executable))

    def notes(self) -> Iterator[Problem]:
        if self._outside:
            yield Problem(
                kind=Kind.NO_FILE,
                cause=f"symbolic links that lead out of the project are not sent: "
                f"{_named(self._outside)}",
                fix=fix_of(Kind.NO_FILE, "outside"),
            )
        if self._odd:
            yield Problem(
                kind=Kind.NO_FILE,
                cause=f"not sent, since they are not regular files: {_named(self._odd)}",
            )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(folder, error) from None


def is_secret_name(name: str) -> bool:
    """Whether files with this name usually hold a secret."""
    is_named = any(fnmatch(name, like) for like in _SECRET_NAMES)
    return is_named and not any(fnmatch(name, like) for like in _NO_SECRETS)


def _hashed(one: Found) -> tuple[str, int, bool]:
    """Return the hash and size of a file, and whether it looks like a secret."""
    try:
        with one.path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256")
            size = file.tell()
    except OSError as error:
        raise _unreadable(one.path, error) from None
    is_secret = is_secret_name(one.path.name) or (_KEY_MARK in head)
    return digest.hexdigest(), size, is_secret


def _unreadable(path: Path, error: OSError) -> SpecError:
    return SpecError(
        f"{path}: cannot be read: {error.strerror}",
        fix="make it readable, or leave it out with a line in .mntrainignore",
    )


def _refuse_too_large(files: Sequence[Found], limit_bytes: int) -> None:
    total = sum(one.size_bytes for one in files)
    if total <= limit_bytes:
        return
    largest = sorted(files, key=lambda one: one.size_bytes, reverse=True)[:NAMED]
    named = ", ".join(f"{one.name} {rough_size(one.size_bytes)}" for one in largest)
    raise SpecError(
        f"the project's {len(files)} files have {rough_size(total)}; the limit is "
        f"{rough_size(limit_bytes)}. The largest: {named}",
        fix="leave out what the job does not need with a .mntrainignore, put data sets on the "
        "nodes, or raise the limit: --project-limit SIZE",
        kind=Kind.TOO_LARGE,
    )


def _secret_notes(names: Sequence[str]) -> Iterator[Problem]:
    if names:
        yield Problem(
            kind=Kind.PRIVATE_FILE,
            cause=f"sent although it looks like a secret: {_named(names)}. The nodes keep it, and "
            "their owners can read it",
            fix="leave it out with a line in .mntrainignore; give tokens with --env NAME",
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
