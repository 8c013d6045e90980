"""Loading: imports that take seconds leave the search for garbage as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jupyter_mntrain.model.lazy import heavy_imports


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    (gc.enable if request.param else gc.disable)()
    yield bool(request.param)
    gc.unfreeze()
    gc.enable()


def test_garbage_is_looked_for_again_and_not_among_what_was_loaded(was_on: bool) -> None:
    with heavy_imports():
        assert not gc.isenabled()
    assert gc.isenabled() == was_on
    assert gc.get_freeze_count() > 0


def test_so_it_is_where_an_import_fails(was_on: bool) -> None:
    with pytest.raises(ImportError), heavy_imports():
        raise ImportError
    assert gc.isenabled() == was_on
