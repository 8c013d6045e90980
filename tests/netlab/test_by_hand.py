"""docs/by_hand.md, executed as it stands on two simulated machines: from nothing to a live plot."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.trust.joining.token import PREFIX
from tests.netlab import Host, Lab, missing, own_lab
from tests.searches import runs_all
from tests.test_house import ROOT
from tests.typed_pages import live_views, shell, steps, typed
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
    pytest.mark.skipif(not runs_all(), reason="it takes minutes: set MNTRAIN_ALL_CASES"),
]

PAGE = ROOT / "docs" / "by_hand.md"
BUSY = "[agent]\ndetached_start_s = 120.0\n"
"""These machines share two cores with whatever else is tested."""


@pytest.fixture
def two() -> Iterator[Lab]:
    """Machines that know nothing of each other."""
    with own_lab(2) as made:
        for host in made.hosts:
            folder = host.home / ".config" / "mntrain"
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text(BUSY)
        yield made


def test_the_page_is_executed_as_it_stands(two: Lab, tmp_path: Path) -> None:
    first, token, shown = two.host("node1"), "TOKEN", 0
    for step in steps(PAGE):
        is_for_both = step.text.startswith("**Both machines**")
        for host in two.hosts if is_for_both else [first]:
            if step.language == "python":
                shown += live_views(host, step.lines)
            for line in step.lines if not step.language else ():
                if "invite" in line:
                    token = invited(host, line)
                else:
                    typed(host, line.replace("TOKEN", token))
    assert token.startswith(PREFIX)
    assert (first.home / "first-run.png").read_bytes().startswith(b"\x89PNG")
    assert shown == 1, "the cell that launches has a live view"


def invited(host: Host, line: str) -> str:
    """The token that a command prints, which goes on in its own terminal."""
    log = host.home / "invite.log"
    with log.open("wb") as out:
        host.popen(shell(f"exec {line}"), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    until(lambda: PREFIX in log.read_text(), f"{log} to say a token")
    return next(word for word in log.read_text().split() if word.startswith(PREFIX))
