"""Host book: which machines an upgrade without names is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.nodes.installing.host_book import HostBook
from jupyter_mntrain.verbs.nodes.installing.target import parse_target

WOPR, MUTHUR, MOVED = map(parse_target, ("ann@wopr", "muthur:2222", "bob@wopr.lan"))


def test_machines_are_remembered_by_cluster_and_node(tmp_path: Path) -> None:
    book = HostBook(tmp_path / "installed.json")
    assert book.all("lab") == []
    book.change("lab", [("wopr", WOPR), ("muthur", MUTHUR)], ())
    book.change("other", [("wopr", WOPR)], ())
    assert HostBook(book.path).all("lab") == [MUTHUR, WOPR]
    book.change("lab", [("wopr", MOVED)], ())
    assert book.all("lab") == [MUTHUR, MOVED]
    book.change("lab", [], [MOVED])
    assert book.all("lab") == [MUTHUR]
    assert book.all("other") == [WOPR]
    assert book.path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "installed.json"
    path.write_text("{")
    with pytest.raises(SpecError, match=r"installed\.json"):
        HostBook(path).all("lab")
