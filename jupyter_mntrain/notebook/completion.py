"""Completion of verbs, options, nodes, interfaces and jobs, from the live view: no network."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

from jupyter_mntrain.verbs import TABLE
from jupyter_mntrain.verbs.table import parser

if TYPE_CHECKING:
    from jupyter_mntrain.notebook.extension import Extension

JOB_VERBS = frozenset({"status", "attach", "plot", "logs", "stop", "kill"})
SCRIPT_VERBS = frozenset({"launch", "dry-run"})


class Completer:
    """Completes ``%mntrain`` lines and the first line of ``%%mntrain`` cells."""

    def __init__(self, extension: Extension) -> None:
        self._extension = extension
        self._options = {name: _options_of(name) for name in TABLE}

        @context_matcher(identifier="mntrain")  # type: ignore[untyped-decorator]
        def match(context: Any) -> dict[str, Any]:
            return self._match(context.line_with_cursor[: context.cursor_position])

        self.match = match

    def _match(self, line: str) -> dict[str, Any]:
        head, found, typed = line.lstrip().partition("mntrain")
        if not found or head.strip("%") or not head or not typed.startswith(" "):
            return {"completions": [], "suppress": False}
        words = typed.split()
        token = "" if typed.endswith(" ") else words.pop()
        candidates = self.candidates(words, token)
        return {
            "completions": [SimpleCompletion(c) for c in candidates if c.startswith(token)],
            "suppress": True,
            "matched_fragment": token,
        }

    def candidates(self, words: list[str], token: str) -> list[str]:
        """What may stand at the cursor, ``words`` being those before it on the line."""
        previous = words[-1] if words else ""
        verb = next((word for word in words if word in TABLE), None)
        if previous in {"--member", "--head", "--node"}:
            return sorted(self._members(token) if previous == "--member" else self._nodes())
        if verb is None:
            return [*TABLE, "--cluster", "--agent", "--json", "--help"]
        if token.startswith("-"):
            return self._options[verb]
        if verb in JOB_VERBS:
            return self._jobs()
        if verb in SCRIPT_VERBS:
            return _launchable(token) or self._options[verb]
        return self._options[verb]

    def _nodes(self) -> Iterable[str]:
        return {view.name for view in self._views() if view.info is not None}

    def _members(self, token: str) -> Iterable[str]:
        """``node:``, then ``node:N:`` with the interfaces that could carry training."""
        name, colon, rest = token.partition(":")
        view = next((v for v in self._views() if v.name == name and v.info is not None), None)
        if not colon or view is None or view.info is None:
            return {f"{node}:" for node in self._nodes()}
        inventory = view.info.inventory
        count, second, _ = rest.partition(":")
        if not second:
            return {f"{name}:{n}" for n in range(1, (len(inventory.gpus) or 1) + 1)}
        usable = [i for i in inventory.interfaces if i.is_up and i.addresses]
        return {f"{name}:{count}:{interface.name}" for interface in usable}

    def _jobs(self) -> list[str]:
        return [view.job_id for c in self._extension.clusters() for view in c.jobs()]

    def _views(self) -> list[Any]:
        return [view for cluster in self._extension.clusters() for view in cluster.nodes()]


def _launchable(token: str) -> list[str]:
    """Recipes, scripts and folders below what is typed."""
    folder = Path(token.rpartition("/")[0] or ".")
    if not folder.is_dir():
        return []
    prefix = f"{token.rpartition('/')[0]}/" if "/" in token else ""
    found = sorted(folder.iterdir())
    files = [f"{prefix}{path.name}" for path in found if path.suffix in {".toml", ".py"}]
    folders = [f"{prefix}{p.name}/" for p in found if p.is_dir() and not p.name.startswith(".")]
    return files + folders


def _options_of(verb: str) -> list[str]:
    root = parser()
    subparsers = next(a for a in root._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    return sorted(subparsers.choices[verb]._option_string_actions)  # noqa: SLF001
