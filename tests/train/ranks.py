"""Ranks: starts those of the trainer like torchrun, each with its own node name and directory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from jupyter_mntrain.agent.machine.ports import PortHolder
from tests.train.forked import begin, train

TIMEOUT_S = 300
"""A few seconds of imports and a few steps, times the machine's other load."""


@dataclass(frozen=True)
class Ended:
    """What one process left behind."""

    exit_code: int
    out: str
    err: str


def run_command(recipe: Path, environment: Mapping[str, str] = {}) -> Ended:
    """The trainer as a person types it."""
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_mntrain.train", str(recipe)],
        env=_base() | dict(environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def run_alone(recipe: Path, *arguments: str, environment: Mapping[str, str] = {}) -> Ended:
    """The trainer without torchrun."""
    said = Path(tempfile.mkdtemp(dir=recipe.parent))
    child = begin(
        train,
        [str(recipe), *arguments],
        environment=_base() | dict(environment),
        log=said / "0.out",
        errors=said / "0.err",
    )
    try:
        return _ended(child, said, 0, TIMEOUT_S)
    finally:
        child.kill()
        child.join()


def run_ranks(
    recipe: Path,
    nodes: Sequence[str],
    *arguments: str,
    metrics: Path | None = None,
    directories: Sequence[Path] | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
    program: Callable[[list[str]], None] = train,
    timeout_s: float = TIMEOUT_S,
) -> list[Ended]:
    """One rank per entry of ``nodes``; equal names are ranks of the same node."""
    held = PortHolder.hold("127.0.0.1", 0, "here")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.port)}
    shared |= {"WORLD_SIZE": str(len(nodes)), "GLOO_SOCKET_IFNAME": "lo"}
    said = Path(tempfile.mkdtemp(dir=recipe.parent))
    children: list[BaseProcess] = []
    for rank, node in enumerate(nodes):
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(nodes[:rank].count(node)),
            "MNTRAIN_NODE": node,
        }
        if metrics is not None:
            own["MNTRAIN_METRICS_DIR"] = str(metrics)
            own["TORCHELASTIC_ERROR_FILE"] = str(metrics / f"error-{rank}.json")
            metrics.mkdir(exist_ok=True)
        own |= environments[rank] if environments else {}
        child = begin(
            program,
            [str(recipe), *arguments],
            environment=_base() | shared | own,
            log=said / f"{rank}.out",
            errors=said / f"{rank}.err",
            directory=directories[rank] if directories else None,
        )
        children.append(child)
    try:
        return [_ended(child, said, rank, timeout_s) for rank, child in enumerate(children)]
    finally:
        for child in children:
            child.kill()
            child.join()
        held.close()


def _ended(child: BaseProcess, said: Path, rank: int, timeout_s: float) -> Ended:
    child.join(timeout_s)
    out, err = ((said / f"{rank}.{kind}").read_text() for kind in ("out", "err"))
    assert child.exitcode is not None, f"rank {rank} does not end: {out}{err}"
    return Ended(child.exitcode, out, err)


def _base() -> dict[str, str]:
    left_out = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MNTRAIN_METRICS_DIR", "MNTRAIN_NODE"}
    mine = {name: value for name, value in os.environ.items() if name not in left_out}
    return mine | {"OMP_NUM_THREADS": "1"}
