"""Verbs where login, home, folder, locale or packages are unlike a developer's: a few of each."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from jupyter_mntrain.model import whereabouts
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import Kept, in_home
from jupyter_mntrain.verbs.table import TABLE
from tests.rows import same_rows
from tests.verbs.surroundings import VERBS, Surrounding, combinations, try_in

IS_ROOT = os.geteuid() == 0 and shutil.which("setpriv") is not None
KEEP = ("invite --no-wait", "agent drain")
"""Verbs that need the folder of a driver, and of a node."""


def test_every_verb_is_tried() -> None:
    tried = Counter(line.split()[0] for line in VERBS.splitlines())
    same_rows(
        TABLE,
        tried,
        "verb '{}' is tried in no surrounding: add a line to VERBS in tests/verbs/surroundings.py",
        "VERBS of tests/verbs/surroundings.py has '{}', which is no verb: take the line out",
    )
    assert len(set(combinations())) >= 50


@pytest.mark.parametrize(
    ("surrounding", "verbs", "codes"),
    [
        (
            Surrounding("nameless", "root", "deleted", "none", "ascii"),
            (*KEEP, "panel", "recipes"),
            (2, 6, 0, 0),
        ),
        (Surrounding("nameless", "unset"), (*KEEP, "nodes", "recipes"), (2, 2, 2, 0)),
        (Surrounding("nameless", "read-only", "closed"), KEEP, (2, 6)),
        (Surrounding(home="file"), KEEP, (2, 6)),
        (Surrounding(packages="old"), ("recipes",), (2,)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, Surrounding) else "",
)
def test_a_verb_works_or_says_in_one_line_why_not(
    surrounding: Surrounding, verbs: tuple[str, ...], codes: tuple[int, ...]
) -> None:
    if surrounding.login == "nameless" and not IS_ROOT:
        pytest.skip("only root can be a uid without a name")
    ended = try_in(surrounding, verbs)
    assert not [one for one in ended if one.fault], ended
    assert tuple(one.code for one in ended) == codes, ended
    for one in ended:
        assert len(one.errors.splitlines()) == (one.code > 1), one


@pytest.mark.parametrize("found", ["~/.config", None], ids=["as it stands", "refused"])
@pytest.mark.parametrize("kept", ["config", "state", "cache"])
def test_without_a_home_there_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, kept: Kept, found: str | None
) -> None:
    """As platformdirs, by its version, answers where HOME is unset and passwd has no entry."""

    def ask(_: str | None) -> Path:
        if found is None:
            raise RuntimeError("could not determine the home directory")
        return Path(found)

    monkeypatch.setitem(whereabouts.FOLDERS, kept, ask)
    with pytest.raises(SpecError):
        whereabouts.kept_folder(kept)
    assert not whereabouts.is_kept("/usr")


def test_a_home_of_nobody_is_a_path_as_it_stands() -> None:
    assert str(in_home("~no-such-user/x")) == "~no-such-user/x"
    assert in_home("~") == in_home("~/") != "~"
