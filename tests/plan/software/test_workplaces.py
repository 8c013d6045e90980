"""Workplaces: one error names every node that lacks what a job runs in."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace, Versions
from jupyter_mntrain.plan.software.workplaces import refuse_lacking, working_in
from tests.standin.nodes import node

FOLDER = Problem(kind=Kind.NO_FILE, cause="--workdir /lm: does not exist", fix="mount it")
TORCH = Problem(kind=Kind.NO_MODULE, cause="torch is not installed", fix="install it")
ALL = FoundWorkplace(python="/env/bin/python")


def lacking(*problems: Problem) -> FoundWorkplace:
    return FoundWorkplace(lacks=problems)


def test_every_node_is_named_with_what_it_lacks() -> None:
    refuse_lacking([("a", ALL), ("b", ALL)])
    found = [("a", lacking(FOLDER)), ("b", ALL), ("c", lacking(FOLDER, TORCH)), ("d", lacking())]
    with pytest.raises(RefusedError) as caught:
        refuse_lacking(found)
    error = caught.value
    assert error.kind is Kind.NO_FILE
    assert error.node is None
    assert error.cause == "a, c: --workdir /lm: does not exist; c: torch is not installed"
    assert error.fix == "mount it; install it"
    with pytest.raises(RefusedError) as caught:
        refuse_lacking([("a", ALL), ("c", lacking(FOLDER, TORCH))])
    assert caught.value.node == "c"
    assert caught.value.cause == "--workdir /lm: does not exist; torch is not installed"


def test_a_node_is_what_its_interpreter_for_the_job_is() -> None:
    versions = Versions(mntrain="1", python="3.12.1", platform="x86_64 linux", torch="2.9.0")
    here = working_in(node("a"), FoundWorkplace(python="/env/bin/python", versions=versions))
    assert (here.python, here.inventory.versions) == ("/env/bin/python", versions)
    assert working_in(node("a"), FoundWorkplace()) == node("a")
