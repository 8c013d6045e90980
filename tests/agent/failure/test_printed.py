"""Printed lines: the exception that ends a rank's output."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_mntrain.agent.failure.printed import last_error, last_traceback_error

GROUPED = """
import asyncio
async def load(name):
    raise ValueError(name)
async def main():
    async with asyncio.TaskGroup() as group:
        for name in {names}:
            group.create_task({work})
asyncio.run(main())
"""
NESTED = """load(name) if name == "a" else main()"""


def printed(script: str) -> list[str]:
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stderr.splitlines()


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_of_a_group_the_exception_that_came_first_is_told(names: list[str]) -> None:
    lines = printed(GROUPED.format(names=names, work="load(name)"))
    assert any(line.lstrip().startswith("| ") for line in lines)
    first = "ValueError: a (<string>, line 4)"
    for more in ([], ["step 3 loss 4.2"]):
        assert last_traceback_error([*lines, *more]) == first
    assert last_error(lines) == first
    assert last_error(["Traceback (most recent call last):", *lines]) == first


def test_of_a_group_in_a_group_likewise() -> None:
    script = (
        "raise ExceptionGroup('outer', [ExceptionGroup('inner', [OSError(1), OSError(2)]),"
        " KeyError(3)])"
    )
    assert last_error(printed(script)) == "OSError: 1 (<string>, line 1)"


def test_a_table_with_margins_is_no_group() -> None:
    lines = ["  | step | loss |", "  +------+------+", "ValueError: x"]
    assert last_error(lines) == "ValueError: x"
    assert last_error(["| ValueError: x"]) is None
