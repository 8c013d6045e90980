"""Ignoring: finds which files of a project are not sent, by ``.gitignore`` and
``.mntrainignore``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pathspec import GitIgnoreSpec

GIT, OWN = ".gitignore", ".mntrainignore"
"""Both have git's patterns. What ``.mntrainignore`` says wins: ``!data.bin`` sends a file that git
ignores. As in git, ``.gitignore`` says nothing of files that are tracked.
"""

_GIT_PATIENCE_S = 5.0
"""Timeout for asking git which files it tracks; afterwards none count as tracked."""

_USUAL = GitIgnoreSpec.from_lines(
    [".git", ".hg", ".svn", "__pycache__/", "*.pyc", ".ipynb_checkpoints/", ".DS_Store", "._*"]
)
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What makes a folder an environment of venv or conda: its programs run only where it was made."""


class IgnoreRules:
    """The ignore patterns that apply below one folder; immutable.

    Args:
        root: of the project; patterns of a git repository around it hold, too.
        is_whole: git's patterns do not hold at all.
    """

    def __init__(self, root: Path, *, is_whole: bool = False) -> None:
        self._is_whole = is_whole
        outer = () if is_whole else tuple(_outer_rules(root))
        # A folder that is named is meant, also one that git ignores whole, such as runs/.
        self._git = () if _said(outer, root, is_folder=True) else outer
        self._tracked = _tracked(root)
        self._wanted: frozenset[Path] = frozenset()
        """Folders of what ``.mntrainignore`` sends: git's patterns may ignore them whole."""
        self._own: tuple[tuple[Path, GitIgnoreSpec], ...] = ()

    def entered(self, folder: Path) -> IgnoreRules:
        """Return the rules within a folder, including those of its own ignore files."""
        inner = object.__new__(IgnoreRules)
        inner._is_whole, inner._tracked = self._is_whole, self._tracked
        inner._git = () if self._is_whole else (*self._git, *_rules_in(folder, GIT))
        inner._own = (*self._own, *_rules_in(folder, OWN))
        inner._wanted = self._wanted | _wanted_in(folder)
        return inner

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a file or folder is not sent."""
        own = _said(self._own, path, is_folder=is_folder)
        if own is not None:
            return own
        if path in self._tracked or path in self._wanted:
            return False
        return self.is_usual(path, is_folder=is_folder) or bool(
            _said(self._git, path, is_folder=is_folder)
        )

    def is_usual(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a file or folder, such as a cache, is left out without mention."""
        if is_folder and any((path / one).exists() for one in ENVIRONMENT_MARKS):
            return True
        return bool(_USUAL.check_file(path.name + "/" * is_folder).include)


def _said(
    rules: tuple[tuple[Path, GitIgnoreSpec], ...], path: Path, *, is_folder: bool
) -> bool | None:
    """Whether the innermost matching pattern ignores a path; ``None`` if none matches."""
    for base, patterns in reversed(rules):
        found = patterns.check_file(_below(base, path, is_folder)).include
        if found is not None:
            return found
    return None


def _tracked(root: Path) -> frozenset[Path]:
    """Return the files that git tracks below a folder and in its submodules, and their folders;
    empty without git.
    """
    if not any((one / ".git").exists() for one in (root, *root.parents)):
        return frozenset()
    # Of a repository that another user owns, as in a container, git tells nothing, lest it run what
    # its configuration names: to list files it would run this program alone.
    trusting = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    command = ("git", *trusting, "-C", str(root), "ls-files", "-z")
    own = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    told = b""
    for words in ((*command, "--recurse-submodules"), command):  # one of them may be damaged
        try:
            told = subprocess.run(
                words, env=own, capture_output=True, timeout=_GIT_PATIENCE_S, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        break
    files = {root / os.fsdecode(one) for one in told.split(b"\0") if one}
    folders = {folder for one in files for folder in one.parents if folder.is_relative_to(root)}
    return frozenset(files | folders)


def _outer_rules(root: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Return the rules of the parent folders, up to the repository's root, if there is one."""
    above = []
    if (root / ".git").exists():
        return []
    for folder in root.parents:
        above.append(folder)
        if (folder / ".git").exists():
            return [rule for one in reversed(above) for rule in _rules_in(one, GIT)]
    return []


def _rules_in(folder: Path, name: str) -> list[tuple[Path, GitIgnoreSpec]]:
    lines = _lines_in(folder, name)
    return [(folder, GitIgnoreSpec.from_lines(lines))] if lines else []


def _lines_in(folder: Path, name: str) -> list[str]:
    try:
        return (folder / name).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def _wanted_in(folder: Path) -> set[Path]:
    """Return the parent folders of each path that a ``!`` pattern includes."""
    lines = (one.strip() for one in _lines_in(folder, OWN))
    paths = (one[1:].strip("/").split("/")[:-1] for one in lines if one.startswith("!"))
    return {folder.joinpath(*parts[: end + 1]) for parts in paths for end in range(len(parts))}


def _below(base: Path, path: Path, is_folder: bool) -> str:
    return path.relative_to(base).as_posix() + "/" * is_folder
