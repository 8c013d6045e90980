"""Compilers are looked for where triton and Inductor look for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.launch.toolchain import find_tools


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_without_a_compiler_there_is_none(folder: Path) -> None:
    found = find_tools({"triton": "3"}, str(folder), {"PATH": str(folder)})
    assert (found.c_compiler, found.cxx_compiler, found.has_headers) == (None, None, False)
    assert found.packages == {"triton": "3"}


def test_gcc_comes_before_clang_and_the_variables_before_both(folder: Path) -> None:
    environment = {"PATH": str(folder)}
    (folder / "Python.h").touch()
    clang = program(folder, "clang")
    assert find_tools({}, str(folder), environment).c_compiler == clang
    gcc, cxx = program(folder, "gcc"), program(folder, "g++")
    found = find_tools({}, str(folder), environment)
    assert (found.c_compiler, found.cxx_compiler, found.has_headers) == (gcc, cxx, True)
    mine = program(folder, "mine")
    own = find_tools({}, str(folder), {**environment, "CC": mine, "CXX": mine})
    assert (own.c_compiler, own.cxx_compiler) == (mine, mine)


def test_a_variable_that_names_no_program_hides_the_compiler_that_there_is(folder: Path) -> None:
    program(folder, "gcc")
    found = find_tools({}, str(folder), {"PATH": str(folder), "CC": "/nowhere/cc"})
    assert found.c_compiler is None
