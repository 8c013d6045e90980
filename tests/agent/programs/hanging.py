"""Pairs of ranks that wait for each other forever, each pair at another place in torch.

``python hanging.py DIRECTORY NAME …``: one process imports torch, and forks two ranks per name.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from jupyter_mntrain.telemetry.startup.mntrain_call_hooks import answer_with_calls
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import answer_with_stacks


def group(rank: int) -> None:
    dist.new_group([0, 1]) if rank == 1 else dist.barrier()


def gather(rank: int) -> None:
    if rank == 0:
        dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.zeros(1))
    time.sleep(1000)


def objects(rank: int) -> None:
    dist.all_gather_object([None, None], "mine") if rank == 0 else dist.barrier()


def barrier(rank: int) -> None:
    # A barrier of Gloo's is an all-reduce: another group, or the two would meet.
    dist.barrier() if rank == 0 else dist.all_reduce(torch.zeros(1), group=other)


def other_call(rank: int) -> None:
    data = torch.zeros(8, 4)
    dist.all_reduce(data)
    if rank == 1:
        dist.all_gather([torch.zeros(8, 4), torch.zeros(8, 4)], data)
    dist.all_reduce(data)


def other_shape(rank: int) -> None:
    dist.all_reduce(torch.zeros(0 if rank == 0 else 7))
    time.sleep(1000)


def skipped_call(rank: int) -> None:
    if rank == 0:
        dist.barrier()
    dist.all_reduce(torch.zeros(3, dtype=torch.int64))


def pipeline(rank: int) -> None:
    stage = PipelineStage(
        torch.nn.Linear(4, 4), rank, 2, torch.device("cpu"), input_args=(torch.zeros(1, 4),)
    )
    schedule = Schedule1F1B(stage, 2, loss_fn=torch.nn.functional.mse_loss)
    if rank == 0:
        time.sleep(1000)
    schedule.step(target=torch.zeros(2, 4))


def backward(rank: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    loss = model(torch.zeros(2, 4)).sum()
    if rank == 1:
        time.sleep(1000)
    loss.backward()


def receive(rank: int) -> None:
    dist.recv(torch.zeros(1), 1 - rank)


def send(rank: int) -> None:
    dist.send(torch.zeros(50_000_000), 1 - rank)  # more than any buffer takes


def gpu(rank: int) -> None:
    torch.cuda._sleep(1 << 43)  # as a call of NCCL's does that another rank has not come to
    torch.cuda.synchronize()


def wait(rank: int) -> None:
    work = dist.irecv(torch.zeros(1), 1 - rank)
    assert work is not None
    work.wait()


def rendezvous(rank: int) -> None:
    if rank == 0:
        join(directory, rank)
    time.sleep(1000)


def build(rank: int) -> None:
    from torch.utils.cpp_extension import load

    own = directory / str(rank)
    own.mkdir()
    (own / "lock").touch()  # as a build leaves it that was ended
    (own / "a.cpp").touch()
    load("extension", [str(own / "a.cpp")], build_directory=str(own))


def join(where: Path, rank: int) -> None:
    dist.init_process_group("gloo", f"file://{where}/store", world_size=2, rank=rank)


os.environ["GLOO_SOCKET_IFNAME"] = "lo"
other = None
for name in sys.argv[2:]:
    directory = Path(sys.argv[1]) / name
    for rank in (0, 1):
        if os.fork() == 0:
            answer_with_stacks(str(directory / "metrics"), str(rank))
            answer_with_calls(str(directory / "metrics"), str(rank))
            beside = directory / f"pid-{rank}.new"
            beside.write_text(str(os.getpid()))
            beside.rename(directory / f"pid-{rank}")
            if name != "rendezvous":
                join(directory, rank)
                other = dist.new_group([0, 1])
            globals()[name](rank)
            os._exit(1)
time.sleep(1000)
