"""torchrun command: the exact command and environment of every participant."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.launch import NodeCommand, torchrun_command
from jupyter_mntrain.launch.torchrun import network_environment, wants_outputs
from jupyter_mntrain.model.environment import HEARTBEAT_VARIABLE, TIMEOUT_VARIABLE
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Attempt,
    Earlier,
    JobSpec,
    Origin,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.node import Gpu
from jupyter_mntrain.plan.spec_check import check_spec
from tests.standin.nodes import gpu

JOB = JobId("j-0000abcd")


def placement(node_rank: int = 0, *, nproc: int = 1, gpus: tuple[int, ...] = ()) -> Placement:
    return Placement(
        node_id=NodeId(f"{node_rank:032x}"),
        node=f"node{node_rank + 1}",
        node_rank=node_rank,
        first_rank=Rank(node_rank),
        nproc=nproc,
        gpus=gpus,
        interface="eno1",
        address=f"10.77.2.{node_rank + 1}",
        agent=(f"10.77.2.{node_rank + 1}:8765",),
    )


def spec(**fields: object) -> JobSpec:
    participants = (Participant(node="node1"), Participant(node="node2", nproc=2))
    basis = {"entry": ("train.py", "--lr", "1"), "participants": participants}
    return msgspec.convert(basis | fields, JobSpec, from_attributes=True)


def render(
    spec: JobSpec,
    own: Placement,
    *,
    gpus: tuple[Gpu, ...] = (),
    cpu_count: int = 8,
    nodes: int = 2,
    earlier: Earlier | None = None,
    of_node: Collection[str] = (),
) -> NodeCommand:
    places = tuple(own if n == own.node_rank else placement(n) for n in range(nodes))
    attempt = Attempt(
        number=1,
        placements=places,
        master_address=places[0].address,
        master_port=29411,
        submitted_s=0.0,
        earlier=earlier,
    )
    return torchrun_command(
        spec,
        attempt,
        own,
        job_id=JOB,
        python="/opt/venv/bin/python",
        directory="/var/jobs/j-0000abcd/attempt-1",
        cpu_count=cpu_count,
        gpus=gpus,
        of_node=of_node,
    )


def test_the_command_of_the_second_of_two_nodes_with_two_ranks() -> None:
    command = render(spec(), placement(1, nproc=2))
    assert command.argv == (
        "/opt/venv/bin/python",
        "-P",
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--node-rank=1",
        "--nproc-per-node=2",
        "--master-addr=10.77.2.1",
        "--master-port=29411",
        "--max-restarts=0",
        "--rdzv-id=j-0000abcd",
        "--rdzv-conf=timeout=60",
        "--log-dir=/var/jobs/j-0000abcd/attempt-1/ranks",
        "--tee=3",
        "train.py",
        "--lr",
        "1",
    )
    assert command.node == "node2"
    assert command.directory == "/var/jobs/j-0000abcd/attempt-1/work"


def test_the_folder_for_results_is_told_in_arguments_and_variables() -> None:
    told = spec(
        entry=("train.py", "--output_dir={out}", "{out}/logs"), environment={"RESULTS": "{out}"}
    )
    command = render(told, placement(1, nproc=2))
    folder = "/var/jobs/j-0000abcd/attempt-1/work/outputs"
    assert command.argv[-3:] == ("train.py", f"--output_dir={folder}", f"{folder}/logs")
    assert command.environment["RESULTS"] == folder
    assert wants_outputs(told)
    assert not wants_outputs(spec())


def test_the_environment_says_which_card_which_job_and_where_samples_go() -> None:
    environment = render(spec(), placement(1, nproc=2)).environment
    assert environment["NCCL_SOCKET_IFNAME"] == "=eno1", "exact: a bare eno1 would match eno10"
    assert environment["GLOO_SOCKET_IFNAME"] == environment["TP_SOCKET_IFNAME"] == "eno1"
    assert environment["MNTRAIN_JOB"] == JOB
    assert environment["MNTRAIN_ATTEMPT"] == "1"
    assert environment["MNTRAIN_NODE"] == "node2"
    assert environment["MNTRAIN_METRICS_DIR"] == "/var/jobs/j-0000abcd/attempt-1/metrics"
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(("devices", "expected"), [((), "1"), (("mlx5_0",), None)])
def test_infiniband_is_off_where_there_is_none_and_exact_where_there_is(
    devices: tuple[str, ...], expected: str | None
) -> None:
    own = msgspec.structs.replace(placement(), rdma_devices=devices)
    environment = network_environment(own)
    assert environment.get("NCCL_IB_DISABLE") == expected
    assert environment.get("NCCL_IB_HCA") == ("=mlx5_0" if devices else None)


def test_devices_are_the_granted_ones_in_order() -> None:
    cards = tuple(gpu(index) for index in range(3))
    command = render(spec(), placement(nproc=2, gpus=(2, 0)), gpus=cards)
    assert command.environment["CUDA_VISIBLE_DEVICES"] == f"{cards[2].uuid},{cards[0].uuid}"
    command = render(spec(), placement(nproc=2, gpus=(2, 0)), gpus=cards[:2])
    assert command.environment["CUDA_VISIBLE_DEVICES"] == f"2,{cards[0].uuid}"


def test_threads_are_shared_among_ranks_and_never_none() -> None:
    assert render(spec(), placement(nproc=3), cpu_count=2).environment["OMP_NUM_THREADS"] == "1"


def test_torchrun_arguments_of_the_user_come_last_so_that_they_win_and_before_the_entry() -> None:
    command = render(spec(torchrun_arguments=("--rdzv-conf=timeout=9", "--no-python")), placement())
    assert command.argv[-5:] == ("--rdzv-conf=timeout=9", "--no-python", "train.py", "--lr", "1")


def test_environment_of_the_user_wins_but_for_what_the_supervisor_finds_the_job_by() -> None:
    given = {"OMP_NUM_THREADS": "7", "NCCL_DEBUG": "INFO", "MNTRAIN_JOB": "j-ffffffff"}
    environment = render(spec(environment=given), placement()).environment
    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["MNTRAIN_JOB"] == JOB


def test_the_log_prefix_names_node_and_rank_once_torchrun_has_filled_it_in() -> None:
    template = render(spec(), placement()).environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"]
    filled = string.Template(template).safe_substitute(role_name="default", rank=3, local_rank=1)
    assert filled == "[node1 rank 3] "


def test_a_single_node_is_rendered_like_any_other() -> None:
    alone = spec(participants=(Participant(node="node1"),))
    argv = render(alone, placement(), nodes=1).argv
    assert {"--nnodes=1", "--node-rank=0", "--master-addr=10.77.2.1"} <= set(argv)


def test_rendering_touches_nothing_and_says_the_same_again() -> None:
    before = dict(os.environ)
    assert render(spec(), placement()) == render(spec(), placement())
    assert dict(os.environ) == before


SCRIPT = """
import os
keys = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT MNTRAIN_JOB NCCL_SOCKET_IFNAME"
print("says " + " ".join(f"{k}={os.environ[k]}" for k in keys.split()), flush=True)
"""


@pytest.mark.slow
def test_torchrun_takes_the_command_and_ranks_get_what_scripts_expect(tmp_path: Path) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = msgspec.structs.replace(placement(nproc=2), address="127.0.0.1", interface="lo")
    attempt = Attempt(
        number=1, placements=(own,), master_address="127.0.0.1", master_port=port, submitted_s=0.0
    )
    alone = spec(entry=("s.py",), participants=(Participant(node="node1", nproc=2),))
    command = torchrun_command(
        alone,
        attempt,
        own,
        job_id=JOB,
        python=sys.executable,
        directory=str(tmp_path),
        cpu_count=2,
    )
    work = Path(command.directory)
    work.mkdir()
    (work / "s.py").write_text(SCRIPT)
    done = subprocess.run(
        command.argv,
        cwd=work,
        env={**os.environ, **command.environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = sorted(re.findall(r"^\[node1 rank (\d)\] says (.*)$", done.stdout, re.MULTILINE))
    assert [rank for rank, _ in said] == ["0", "1"], done.stdout
    for rank, values in said:
        assert values == (
            f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
            f"MASTER_PORT={port} MNTRAIN_JOB={JOB} NCCL_SOCKET_IFNAME==lo"
        )


def test_what_other_launchers_set_is_there_for_scripts_that_look_for_it() -> None:
    environment = render(spec(), placement(1, nproc=3)).environment
    assert (environment["CROSS_RANK"], environment["LOCAL_SIZE"]) == ("1", "3")
    assert environment["NODE_RANK"] == "1"
    assert environment["CROSS_SIZE"] == environment["NNODES"]


@pytest.mark.parametrize(("gpus", "expected"), [((), "true"), ((0,), None)])
def test_accelerate_is_told_of_ranks_without_a_gpu(
    gpus: tuple[int, ...], expected: str | None
) -> None:
    environment = render(spec(), placement(gpus=gpus)).environment
    assert environment.get("ACCELERATE_USE_CPU") == expected


def told(spec: JobSpec, earlier: Earlier | None = None) -> dict[str, str]:
    environment = render(spec, placement(), earlier=earlier).environment
    names = ("MNTRAIN_FIRST_WORLD_SIZE", "MNTRAIN_SAVED_STEP", "MNTRAIN_ON_NAN")
    assert environment["MNTRAIN_WHOLE_WORLD_SIZE"] == str(spec.world_size), "with all its nodes"
    return {name: environment[name] for name in names if name in environment}


def test_a_restarted_script_is_told_what_has_changed() -> None:
    assert told(spec()) == {"MNTRAIN_FIRST_WORLD_SIZE": "2"}
    earlier = Earlier(world_size=8, step=400, attempt=1, saved_step=300)
    expected = {"MNTRAIN_FIRST_WORLD_SIZE": "8", "MNTRAIN_SAVED_STEP": "300"}
    assert told(spec(), earlier) == expected
    assert told(spec(on_nan="report"))["MNTRAIN_ON_NAN"] == "report"


RUN = JobId("j-00000001")


def of_run(origin: Origin | None, earlier: Earlier | None = None) -> dict[str, str]:
    environment = render(spec(origin=origin), placement(), earlier=earlier).environment
    names = ("RUN", "RUN_ATTEMPT", "CHECKPOINT_DIR", "RESUME_FROM", "RESUME_STEP", "SAVED_STEP")
    found = {name: environment.get(f"MNTRAIN_{name}") for name in names}
    return {name: value for name, value in found.items() if value is not None}


def test_a_resumed_job_has_the_checkpoints_of_its_run() -> None:
    own = {"RUN": JOB, "RUN_ATTEMPT": "1", "CHECKPOINT_DIR": f"/var/runs/{JOB}/checkpoints"}
    assert of_run(None) == own
    goes_on = Origin(job=RUN, run=RUN, step=400, attempts=6, world_size=8, reached=420)
    expected = {"RUN": RUN, "RUN_ATTEMPT": "7", "CHECKPOINT_DIR": f"/var/runs/{RUN}/checkpoints"}
    expected |= {"SAVED_STEP": "400"}
    assert of_run(goes_on) == expected | {"RESUME_STEP": "400"}
    restarted = Earlier(world_size=8, step=520, attempt=1, saved_step=500)
    assert of_run(goes_on, restarted) == expected | {"SAVED_STEP": "500"}, "from the newest"
    assert told(spec(origin=goes_on))["MNTRAIN_FIRST_WORLD_SIZE"] == "8"


def test_a_branch_begins_with_anothers_checkpoint_in_a_directory_of_its_own() -> None:
    branch = Origin(job=RUN, run=RUN, is_branch=True, step=400)
    found = of_run(branch)
    assert (found["RUN"], found["CHECKPOINT_DIR"]) == (JOB, f"/var/runs/{JOB}/checkpoints")
    assert found["RESUME_FROM"] == f"/var/runs/{RUN}/checkpoints"
    assert found["RESUME_STEP"] == "400"
    restarted = of_run(branch, Earlier(world_size=2, step=401, attempt=1))
    assert restarted["RESUME_FROM"] == found["RESUME_FROM"], "it may have none of its own yet"
    named = msgspec.structs.replace(branch, path="/shared/kept", step=None)
    assert of_run(named)["RESUME_FROM"] == "/shared/kept"
    assert "RESUME_STEP" not in of_run(named)


def test_torchs_flight_recorder_is_on_unless_the_job_says_otherwise() -> None:
    on = render(spec(), placement(gpus=(0,))).environment
    assert int(on["TORCH_FR_BUFFER_SIZE"]) > 0
    assert on["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert on["TORCH_FR_DUMP_TEMP_FILE"].startswith("/var/jobs/j-0000abcd/attempt-1/metrics/")
    loud = render(spec(environment={"NCCL_DEBUG": "INFO"}), placement(0)).environment
    assert (loud["NCCL_DEBUG"], loud["NCCL_DEBUG_TIMESTAMP_LEVELS"]) == ("INFO", "WARN,INFO")
    own = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    given = render(spec(environment=own), placement(0)).environment
    assert "TORCH_FR_BUFFER_SIZE" not in given, "torch would take it before the older name"
    assert own.items() <= given.items()


def nccl_log(of_node: Collection[str] = (), **given: str) -> dict[str, str]:
    command = render(spec(environment=given), placement(gpus=(0,)), of_node=of_node)
    found = command.environment.items()
    return {name: value for name, value in found if name.startswith("NCCL_DEBUG")}


def test_nccl_writes_of_its_start_and_networks_into_files_of_its_own() -> None:
    assert nccl_log() == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_DEBUG_FILE": "/var/jobs/j-0000abcd/attempt-1/nccl/%h.%p.log",
        "NCCL_DEBUG_TIMESTAMP_LEVELS": "WARN,INFO",
    }
    without = render(spec(), placement()).environment
    assert not any(name.startswith("NCCL_DEBUG") for name in without)


def test_a_job_that_sets_nccls_log_itself_has_it_as_it_says() -> None:
    assert set(nccl_log(NCCL_DEBUG="WARN")) == {"NCCL_DEBUG", "NCCL_DEBUG_TIMESTAMP_LEVELS"}
    assert nccl_log(NCCL_DEBUG_SUBSYS="ALL")["NCCL_DEBUG_SUBSYS"] == "ALL"


def test_the_nodes_own_variables_win_over_defaults_but_not_over_the_jobs() -> None:
    own = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"}
    assert set(nccl_log(own)) == {"NCCL_DEBUG_TIMESTAMP_LEVELS"}
    assert nccl_log(own, NCCL_DEBUG="TRACE")["NCCL_DEBUG"] == "TRACE"
    place = msgspec.structs.replace(placement(), rdma_devices=("mlx5_0",), rdma_gid_index=3)
    assert not any("IB" in name for name in network_environment(place, (), {"NCCL_IB_HCA"}))
    kept = network_environment(place, (), {"NCCL_IB_GID_INDEX"})
    assert set(kept) & {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX"} == {"NCCL_IB_HCA"}
    # Whether a job uses InfiniBand is decided for all of its nodes.
    assert network_environment(placement(), (), {"NCCL_IB_HCA"})["NCCL_IB_DISABLE"] == "1"


TRAINS = ("-m", "jupyter_mntrain.train", "recipe.toml")


def allocator(
    given: dict[str, str], gpus: tuple[int, ...] = (0,), *there: Gpu, **fields: object
) -> dict[str, str]:
    asked = spec(environment=given, **{"entry": TRAINS, **fields})
    found = render(asked, placement(gpus=gpus), gpus=there).environment.items()
    return {name: value for name, value in found if "ALLOC_CONF" in name}


def test_a_gpus_memory_grows_in_segments_unless_the_job_configures_the_allocator() -> None:
    names = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
    assert allocator({}) == dict.fromkeys(names, "expandable_segments:True")
    assert allocator({}, gpus=()) == {}
    for name in (*names, "PYTORCH_HIP_ALLOC_CONF"):
        assert allocator({name: "max_split_size_mb:9"}) == {name: "max_split_size_mb:9"}


def test_segments_grow_only_where_that_works() -> None:
    there = gpu(0), gpu(1, maps_memory=False)
    assert allocator({}, (0, 2), *there)
    assert not allocator({}, (1,), *there), "a vGPU, a Jetson, a DGX Spark, or WSL2"
    assert not allocator({}, (0, 1), *there)
    own = ("train.py",)
    assert not allocator({}, (0,), *there, entry=own), "it may share tensors between processes"


@pytest.mark.parametrize(
    ("own", "of_node", "told"),
    [
        ({}, (), None),
        ({TIMEOUT_VARIABLE: "120"}, (), "480"),
        ({TIMEOUT_VARIABLE: "3600.5"}, (), "3601"),
        ({TIMEOUT_VARIABLE: "3600"}, (HEARTBEAT_VARIABLE,), None),
        ({TIMEOUT_VARIABLE: "3600", HEARTBEAT_VARIABLE: "9"}, (), "9"),
        ({TIMEOUT_VARIABLE: "soon"}, (), None),
        ({TIMEOUT_VARIABLE: "inf"}, (), None),
    ],
)
def test_nccls_heartbeat_lasts_as_long_as_a_rank_may_wait(
    own: dict[str, str], of_node: tuple[str, ...], told: str | None
) -> None:
    found = render(spec(environment=own), placement(gpus=(0,)), of_node=of_node).environment
    assert found.get(HEARTBEAT_VARIABLE) == told


def test_ranks_are_bound_to_the_cores_near_their_gpu_by_torchrun() -> None:
    asked = spec(entry=("/train.py",), torchrun_arguments=("--numa-binding=node",))
    check_spec(asked)
    assert "--numa-binding=node" in render(asked, placement(gpus=(0,))).argv


def test_a_gpu_gets_all_hardware_queues_unless_the_job_says_otherwise() -> None:
    for own, expected in (({}, "32"), ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "1")):
        found = render(spec(environment=own), placement(gpus=(0,)))
        assert found.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == expected
