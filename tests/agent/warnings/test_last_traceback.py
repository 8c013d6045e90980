"""Last traceback: an exception that a rank ended with, and those that it went on from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_mntrain.agent.warnings.quiet_end import MOST_LINES_AFTER, last_traceback

CAUGHT = """
import traceback
def label(text):
    return int(text)
for step in range(3):
    print("step", step)
try:
    label("x")
except ValueError:
    traceback.print_exc()
"""
CHAINED = """
import traceback
try:
    try:
        {}["a"]
    except KeyError as error:
        raise RuntimeError("no label") from error
except RuntimeError:
    traceback.print_exc()
print("bye")
"""
IN_A_THREAD = """
import threading
def load():
    raise OSError("the disk is gone")
thread = threading.Thread(target=load)
thread.start()
thread.join()
"""
WENT_ON = """
import logging
for step in range(20):
    if step == 3:
        try:
            open("/nowhere/at/all")
        except OSError:
            logging.exception("step %d is skipped", step)
    print("step", step)
"""
DESTRUCTOR = """
import sys
class Loader:
    def __del__(self):
        raise RuntimeError("already closed")
loader = Loader()
del loader
print("done")
"""
BOTH = CAUGHT + DESTRUCTOR
FINE = "print('Traceback of nothing')\nprint('ValueError: not raised')"


def printed(script: str) -> list[str]:
    """What Python itself prints, in order."""
    done = subprocess.run(
        [sys.executable, "-u", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout.split("\n")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (CAUGHT, "ValueError: invalid literal for int() with base 10: 'x' (<string>, line 4)"),
        (CHAINED, "RuntimeError: no label (<string>, line 7)"),
        (IN_A_THREAD, "OSError: the disk is gone (<string>, line 4)"),
        (BOTH, "ValueError: invalid literal for int() with base 10: 'x' (<string>, line 4)"),
    ],
    ids=["caught", "chained", "in a thread", "before a destructor's"],
)
def test_an_exception_at_the_end_is_found(script: str, message: str) -> None:
    found = last_traceback(printed(script))
    assert found is not None
    assert found.message == message
    assert found.lines[0].startswith("Traceback")


@pytest.mark.parametrize(
    "script", [WENT_ON, DESTRUCTOR, FINE], ids=["went on", "destructor", "none"]
)
def test_what_a_program_went_on_from_is_none_of_our_business(script: str) -> None:
    assert last_traceback(printed(script)) is None


@pytest.mark.parametrize("more", [0, 1])
def test_a_few_words_of_farewell_do_not_hide_it(more: int) -> None:
    lines = [*printed(CAUGHT), *["wandb: synced"] * (MOST_LINES_AFTER + more)]
    assert (last_traceback(lines) is None) == bool(more)


def test_frames_of_cplusplus_belong_to_the_exception() -> None:
    frames = [f"frame #{n}: c10::Error::Error + 0x6b (0x7f)" for n in range(30)]
    lines = [
        *("Traceback (most recent call last):", '  File "a.py", line 1, in <module>'),
        "RuntimeError: Expected all tensors to be on the same device",
        *("Exception raised from add at Add.cpp:1 (most recent call first):", *frames),
    ]
    found = last_traceback(lines)
    assert found is not None
    assert found.message.endswith("(a.py, line 1)")


def test_half_a_traceback_is_none() -> None:
    assert last_traceback(["Traceback (most recent call last):", '  File "a.py", line 1']) is None
    assert last_traceback([]) is None
