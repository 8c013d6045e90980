"""Ignoring: which files of a project stay at home, by ``.gitignore`` and ``.mntrainignore``."""

from __future__ import annotations

from pathlib import Path

from pathspec import GitIgnoreSpec

GIT, OWN = ".gitignore", ".mntrainignore"
"""Both have git's patterns. What ``.mntrainignore`` says wins: ``!data.bin`` sends a file that git
ignores.
"""

_USUAL = GitIgnoreSpec.from_lines(
    [".git", ".hg", ".svn", "__pycache__/", "*.pyc", ".ipynb_checkpoints/", ".DS_Store"]
)
VIRTUAL_ENVIRONMENT = "pyvenv.cfg"
"""File that makes a folder a virtual environment: its programs run only where it was made."""


class IgnoreRules:
    """The patterns that hold below one folder; immutable.

    Args:
        root: of the project; patterns of a git repository around it hold, too.
    """

    def __init__(self, root: Path) -> None:
        self._git = tuple(_outer_rules(root))
        self._own: tuple[tuple[Path, GitIgnoreSpec], ...] = ()

    def entered(self, folder: Path) -> IgnoreRules:
        """The rules within a folder, with those of its own files."""
        inner = object.__new__(IgnoreRules)
        inner._git = (*self._git, *_rules_in(folder, GIT))
        inner._own = (*self._own, *_rules_in(folder, OWN))
        return inner

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a file or folder stays at home."""
        for rules in (self._own, self._git):
            for base, patterns in reversed(rules):
                found = patterns.check_file(_below(base, path, is_folder)).include
                if found is not None:
                    return found
        if is_folder and (path / VIRTUAL_ENVIRONMENT).exists():
            return True
        return bool(_USUAL.check_file(path.name + "/" * is_folder).include)


def _outer_rules(root: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Rules of the folders above, up to the repository's root; none outside of a repository."""
    above = []
    if (root / ".git").exists():
        return []
    for folder in root.parents:
        above.append(folder)
        if (folder / ".git").exists():
            return [rule for one in reversed(above) for rule in _rules_in(one, GIT)]
    return []


def _rules_in(folder: Path, name: str) -> list[tuple[Path, GitIgnoreSpec]]:
    try:
        text = (folder / name).read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return []
    return [(folder, GitIgnoreSpec.from_lines(text.splitlines()))]


def _below(base: Path, path: Path, is_folder: bool) -> str:
    return path.relative_to(base).as_posix() + "/" * is_folder
