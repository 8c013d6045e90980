"""Options of a launch on a scheduler's nodes."""

from __future__ import annotations

from argparse import Namespace

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.launching.allocations.on_options import nodes_request, refuse_with_on


def args(line: str) -> Namespace:
    return parse(["launch", *line.split()], program="mntrain").args


def test_the_options_become_a_request() -> None:
    line = "dir/my_job.py --on slurm --nodes 3 --gpus a100:4 --time 90m --partition gpu"
    request = nodes_request(args(f"{line} --sbatch=--exclusive --sbatch=--mail-type=END"))
    assert (request.source, request.nodes, request.gpus) == ("slurm", 3, "a100:4")
    assert (request.time_s, request.name) == (5400.0, "my_job")
    assert request.options == {
        "partition": ("gpu",),
        "sbatch": ("--exclusive", "--mail-type=END"),
    }


@pytest.mark.parametrize(
    ("text", "told_s"), [("2h", 7200.0), ("02:00:00", 7200.0), ("1-12:00:30", 129_630.0)]
)
def test_a_time_is_a_duration_or_written_as_schedulers_do(text: str, told_s: float) -> None:
    assert nodes_request(args(f"a.py --on=slurm --time {text}")).time_s == told_s


@pytest.mark.parametrize(
    "line",
    [
        "a.py --on nowhere",
        "a.py --on slurm --time 0s",
        "a.py --on slurm --time 00:00:00",
        "a.py --on slurm --time 5",
        "a.py --on slurm --nodes 0",
        "a.py --partition gpu",
        "a.py --nodes 2",
        "a.py --on",
    ],
)
def test_what_cannot_be_meant_is_a_bad_command(line: str) -> None:
    with pytest.raises(SpecError) as raised:
        args(line)
    assert raised.value.fix


def test_an_option_is_given_once() -> None:
    with pytest.raises(SpecError):
        nodes_request(args("a.py --on slurm --partition a --partition b"))


@pytest.mark.parametrize("more", ["--queue", "--cluster lab", "--agent node1", "--allocation /d"])
def test_new_nodes_are_no_nodes_of_another_cluster(more: str) -> None:
    refuse_with_on(args("a.py --on slurm"))
    with pytest.raises(SpecError):
        refuse_with_on(args(f"a.py --on slurm {more}"))


@pytest.mark.parametrize("more", ["--wait", "--variable job", "-o job"])
def test_who_does_not_wait_has_no_job_yet(more: str) -> None:
    refuse_with_on(args("a.py --on slurm --no-wait"))
    refuse_with_on(args(f"a.py --on slurm {more}"))
    with pytest.raises(SpecError) as raised:
        refuse_with_on(args(f"a.py --on slurm --no-wait {more}"))
    assert raised.value.fix
