"""Arrangement and spec check: what is refused before any node is contacted."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.plan.arrange import arrange, find_participants
from jupyter_mntrain.plan.spec_check import check_spec
from tests.hostile import assert_safe
from tests.standin.nodes import gpu, nic, node
from tests.wording import says, wording


def spec(**fields: Any) -> JobSpec:
    basis: dict[str, Any] = {"entry": ("-m", "trainer"), "participants": (Participant(node="a"),)}
    return JobSpec(**(basis | fields))


@pytest.mark.parametrize(
    "good",
    [
        spec(),
        spec(entry=("t.py", "--x"), files={"t.py": ""}),
        spec(entry=("./t.py",), files={"t.py": ""}),
        spec(entry=("sub/t.py",), files={"sub/t.py": ""}),
        spec(entry=("/opt/t.py",)),
        spec(entry=("bash", "-c", "true"), torchrun_arguments=("--no-python",)),
        spec(torchrun_arguments=("--redirects=3", "--rdzv-conf=timeout=300")),
        spec(environment={"NCCL_DEBUG": "INFO", "NNODES": "9"}),
        spec(python="conda:lm"),
        spec(python="conda:/opt/lm"),
        spec(python="uv:~/lm"),
        spec(python="/opt/lm/bin/python", workdir="/lm"),
        spec(port=29400, link_capacity_bytes_per_s=1.25e8),
        spec(participants=(Participant(node="a", nproc=2, gpus=(3, 1)),)),
    ],
)
def test_what_can_work(good: JobSpec) -> None:
    check_spec(good)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (spec(entry=()), "nothing to run"),
        (spec(entry=("-m",)), "-m without a module"),
        (spec(entry=("--nproc", "t.py")), "not a script"),
        (spec(entry=("-m", "p"), torchrun_arguments=("--no-python",)), "not a Python module"),
        (spec(entry=("t.py",)), "script 't.py' is not sent with the job"),
        (spec(entry=("t.py",), files={"u.py": ""}), "script 't.py' is not sent"),
        (spec(files={"../t.py": ""}), "outside of the job's directory"),
        (spec(files={"/etc/passwd": ""}), "outside of the job's directory"),
        (spec(files={"big": "x" * (9 << 20)}), "9.0 MiB"),
        (spec(participants=()), "no participant"),
        (spec(participants=(Participant(node="a", nproc=0),)), "a: 0 processes"),
        (spec(participants=(Participant(node="a", nproc=2, gpus=(0,)),)), "a: 2 processes and 1"),
        (spec(participants=(Participant(node="a", nproc=2, gpus=(0, 0)),)), "a: the same GPU"),
        (spec(name="x" * 129), "name has 129 characters; the limit is 128"),
        (spec(participants=(Participant(node="a"),) * 2), "a: is listed 2 times as a participant"),
        (spec(port=70000), "port 70000"),
        (spec(min_nodes=1), "set --restarts (max_restarts in a job file) to at least 1"),
        (spec(min_nodes=5), "set --min-nodes (min_nodes in a job file) to 1"),
        (spec(port=0), "port 0"),
        (spec(torchrun_arguments=("--nnodes=3",)), "torchrun's --nnodes is set by the launch"),
        (spec(torchrun_arguments=("--node_rank", "1")), "--node-rank is set by the launch"),
        (spec(environment={"RANK": "3"}), "RANK is set for each rank"),
        (spec(environment={"MNTRAIN_JOB": "zzz"}), "MNTRAIN_JOB is set for each rank"),
        (spec(link_capacity_bytes_per_s=0.0), "link_capacity"),
        (spec(link_capacity_bytes_per_s=float("nan")), "link_capacity"),
        (spec(version=99), "version 99"),
        (spec(queue_limit_s=0.0), "--queue-limit must be a positive time"),
        (spec(lost_limit_s=float("nan")), "--lost-limit must be a positive time"),
        (spec(python="python3"), "--python 'python3'"),
        (spec(python="conda:"), "--python 'conda:'"),
        (spec(python="uv:lm"), "--python 'uv:lm'"),
    ],
)
def test_what_cannot(bad: JobSpec, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(bad)
    assert caught.value.kind is Kind.BAD_SPEC
    assert says(said, str(caught.value))
    assert caught.value.fix
    assert "\n" not in str(caught.value)


def test_a_gpu_that_is_not_there() -> None:
    nodes = [node("a", gpus=(gpu(0), gpu(1))), node("b")]
    with pytest.raises(SpecError, match=wording("a: has GPUs 0, 1, not GPU 5")):
        arrange([Participant(node="a", gpus=(5,))], nodes[:1])
    with pytest.raises(SpecError, match=wording("b: has no GPU, but GPU 0 is requested")):
        arrange([Participant(node="b", gpus=(0,))], nodes[1:])


def test_one_node_under_two_names_takes_part_twice() -> None:
    nodes = [node("a")]
    with pytest.raises(SpecError, match=wording("is listed 2 times as a participant")):
        find_participants([Participant(node="a"), Participant(node="id-of-a")], nodes)


def test_a_node_that_takes_part_twice_is_told_one_fix_before_and_after_it_is_found() -> None:
    with pytest.raises(SpecError) as by_name:
        check_spec(spec(participants=(Participant(node="a"),) * 2))
    with pytest.raises(SpecError) as by_id:
        find_participants([Participant(node="a"), Participant(node="id-of-a")], [node("a")])
    assert by_name.value.problem == by_id.value.problem


def test_two_nodes_of_one_name_cannot_be_in_one_job() -> None:
    """Logs, plots and links go by name."""
    twins = [node("a", node_id="1" * 32), node("a", node_id="2" * 32)]
    with pytest.raises(SpecError, match=wording("--name")):
        find_participants([Participant(node="1" * 32), Participant(node="2" * 32)], twins)


def test_nodes_come_back_in_the_order_of_participants() -> None:
    nodes = [node("a", nic("eth0", "10.0.0.1/24")), node("b", nic("eth0", "10.0.0.2/24"))]
    participants = [Participant(node="b"), Participant(node="a")]
    chosen = find_participants(participants, nodes)
    assert [one.name for one in chosen] == ["b", "a"]
    assert [place.node for place in arrange(participants, chosen)] == ["b", "a"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "x" * 201),
        ("name", "\x1b]0;title\x07"),
        ("name", "user\u202egpj"),
        ("environment", {"A=B": "1"}),
        ("environment", {"A\nB": "1"}),
        ("environment", {"": "1"}),
        ("environment", {"A": "\ud83d"}),
        ("files", {"s.py": "print('\ud83d')"}),
        ("files", {"\ud83d": ""}),
        ("entry", ("s.py", "\ud83d")),
        ("entry", ("s.py", "a\0b")),
        ("environment", {"A": "a\0b"}),
        ("torchrun_arguments", ("--redirects=\0",)),
        ("files", {"s.py": "", "a\0b": ""}),
        ("files", {"s.py": "", "é" * 128: ""}),
        ("files", {"s.py": "", "/".join(["a" * 200] * 6): ""}),
        ("files", {"s.py": "", "a": "", "a/b": ""}),
    ],
)
def test_a_spec_that_cannot_be_shown_sent_or_written_is_refused(field: str, value: object) -> None:
    fields = {"entry": ("s.py",), "files": {"s.py": ""}, "participants": (Participant(node="a"),)}
    check_spec(JobSpec(**fields))  # type: ignore[arg-type]
    with pytest.raises(SpecError) as caught:
        check_spec(JobSpec(**(fields | {field: value})))  # type: ignore[arg-type]
    assert_safe(str(caught.value))
    assert caught.value.fix
