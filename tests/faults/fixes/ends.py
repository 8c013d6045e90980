"""Trials of fixes of failed jobs: files, packages, memory, signals, ports."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
from pathlib import Path

import psutil
import torch

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.faults.fixes.ground import MEBIBYTE, Ground, Run, Trial, edit
from tests.waiting import until


def script(text: str) -> Run:
    return Run(script=text)


# The script and what it needs

LABELS = """
labels = ["1", "x"]
print(sum(int(one) for one in labels))
"""


def _correct_the_data(_: Ground, run: Run, problem: Problem) -> Run:
    assert "line 3" in problem.detail
    assert "'x'" in problem.detail
    return run.edited('"x"', '"2"')


MODE = """
import os, sys
if "MODE" not in os.environ:
    print("start it with MODE=fast")
    sys.exit(3)
"""


def _do_what_it_printed(_: Ground, run: Run, problem: Problem) -> Run:
    printed = re.search(r"start it with (\w+)=(\w+)", problem.detail)
    assert printed is not None
    return run.with_(environment={printed[1]: printed[2]})


CRASH = """
import ctypes
def load():
    return ctypes.string_at(0)
load()
"""


def _correct_the_place(_: Ground, run: Run, problem: Problem) -> Run:
    place = re.search(r"script\.py\W+line (\d+) in load", problem.detail)
    assert place is not None
    lines = run.script.splitlines()
    return run.edited(lines[int(place[1]) - 1], "    return b''")


NO_MODULE = "import extra_of_ours; extra_of_ours.run()"
NO_FILE = "print(open('labels.csv').read())"

MODEL = """
import sys
from huggingface_hub import snapshot_download
path = sys.argv[1] if sys.argv[1:] else snapshot_download("nobody/no-model")
print(open(f"{path}/config.json").read())
"""


def _never_downloaded(ground: Ground) -> Run:
    variables = {"HF_HUB_OFFLINE": "1", "HF_HOME": ground.path("hub")}
    return Run(script=MODEL, environment=variables)


def _give_its_path(ground: Ground, run: Run, _: Problem) -> Run:
    folder = ground.directory / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return run.with_(arguments=(str(folder),))


READS = "import sys; print(open(sys.argv[1]).read())"


def _locked(ground: Ground) -> Run:
    path = Path(ground.path("locked.csv"))
    path.write_text("1")
    path.chmod(0)
    return Run(script=READS, arguments=(str(path),))


def _permit(ground: Ground, run: Run, _: Problem) -> Run:
    Path(run.arguments[0]).chmod(0o600)
    return run


PROGRAM = "import subprocess; subprocess.run(['our-tool'], check=True)"


def _find_the_program(ground: Ground, run: Run, problem: Problem) -> Run:
    assert "our-tool" in problem.fix
    folder = Path(ground.program("our-tool", "true")).parent
    return run.with_(environment={"PATH": f"{folder}:{os.environ['PATH']}"})


LIBRARY = "import ctypes; ctypes.CDLL('libours.so.1')"


def _find_the_library(ground: Ground, run: Run, problem: Problem) -> Run:
    assert "libours.so.1" in problem.fix
    folder = ground.directory / "lib"
    folder.mkdir()
    [found] = [one for one in Path("/proc/self/maps").read_text().split() if _LIBC.search(one)][:1]
    shutil.copy(found, folder / "libours.so.1")
    return run.with_(environment={"LD_LIBRARY_PATH": str(folder)})


_LIBC = re.compile(r"/libz\.so|/libm\.so|/libc\.so|/libdl")

SOCKET = "from multiprocessing.connection import Listener; Listener(family='AF_UNIX').close()"


def _far_away(ground: Ground) -> Run:
    folder = ground.directory / ("long" * 30)
    folder.mkdir()
    return Run(script=SOCKET, environment={"TMPDIR": str(folder)})


LOADS = "import sys, torch; torch.load(sys.argv[1])"


def _torn(ground: Ground) -> Run:
    path = ground.directory / "torn.pt"
    torch.save({"weight": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    return Run(script=LOADS, arguments=(str(path),))


def _copy_again(_: Ground, run: Run, __: Problem) -> Run:
    torch.save({"weight": torch.zeros(1000)}, run.arguments[0])
    return run


OF_ANOTHER = """
import torch
torch.nn.Linear(2, 3).load_state_dict(torch.nn.Linear(2, 4).state_dict())
"""

# Disks and limits

WRITES = """
import sys
with open(sys.argv[1], "wb") as file:
    file.write(bytes(int(sys.argv[2])))
"""


def _full(ground: Ground) -> Run:
    ground.inside("dd", "if=/dev/zero", f"of={ground.path('small/old')}", "bs=900k", "count=1")
    return Run(script=WRITES, arguments=(ground.path("small/new"), "600000"))


def _free_space(ground: Ground, run: Run, _: Problem) -> Run:
    ground.inside("rm", ground.path("small/old"))
    return run


def _sealed(ground: Ground) -> Run:
    return Run(script=WRITES, arguments=(ground.path("sealed/new"), "1"))


def _remount(ground: Ground, run: Run, _: Problem) -> Run:
    ground.inside("mount", "-o", "remount,rw", ground.path("sealed"))
    return run


def _large(ground: Ground) -> Run:
    return Run(script=WRITES, arguments=(ground.path("large"), str(16 * MEBIBYTE)))


def _lift_file_size(ground: Ground, run: Run, _: Problem) -> Run:
    ground.limit(resource.RLIMIT_FSIZE)
    return run


MANY = "files = [open(__file__) for _ in range(400)]"


def _lift_files(ground: Ground, run: Run, _: Problem) -> Run:
    ground.limit(resource.RLIMIT_NOFILE)
    return run


SHARES = "import torch; torch.zeros(2 << 20).share_memory_()"


def _enlarge_shared_memory(ground: Ground, run: Run, _: Problem) -> Run:
    ground.inside("mount", "-o", "remount,size=64m", "/dev/shm")
    return run


BATCH = "import sys; bytearray(int(sys.argv[1]))"


def _smaller_batch(_: Ground, run: Run, __: Problem) -> Run:
    return run.with_(arguments=("1000",))


# Signals

MEETS_A_KILLER = """
import os, subprocess, sys
if os.path.exists(sys.argv[1]):
    subprocess.run([sys.argv[1], str(os.getpid())])
"""


def _killed_by(number: signal.Signals, name: str) -> Trial:
    kind = Kind.KILLED if number == signal.SIGKILL else Kind.TERMINATED

    def prepare(ground: Ground) -> Run:
        killer = ground.program(name, f"kill -{number:d} $1")
        return Run(script=MEETS_A_KILLER, arguments=(killer,))

    def end_the_sender(_: Ground, run: Run, __: Problem) -> Run:
        Path(run.arguments[0]).unlink()
        return run

    words = "for what sent the signal" if kind is Kind.KILLED else "check for a scheduler's time"
    return Trial(kind, prepare, words, end_the_sender)


WORKERS = """
import os, subprocess, sys
from torch.utils.data import DataLoader, get_worker_info
class Numbers(list):
    def __getitem__(self, at):
        if get_worker_info() is not None:
            subprocess.run([sys.argv[1], str(os.getpid())])
        return at
print(list(DataLoader(Numbers([0] * 4), num_workers=int(sys.argv[2]))))
"""


def _workers(ground: Ground) -> Run:
    killer = ground.program("killer-of-workers", "kill -9 $1")
    return Run(script=WORKERS, arguments=(killer, "1"))


def _no_workers(_: Ground, run: Run, __: Problem) -> Run:
    return run.with_(arguments=(run.arguments[0], "0"))


def _kill_the_supervisor(_: Ground, job: Job) -> None:
    def supervisors() -> list[psutil.Process]:
        return [
            one
            for one in psutil.process_iter(["cmdline"])
            if "jupyter_mntrain.agent.attempt.supervisor" in (one.info["cmdline"] or [])
            and job.id in " ".join(one.info["cmdline"])
        ]

    def runs() -> bool:
        return job.view().state == "running"

    until(runs, "it to run")
    supervisors()[0].kill()


SLEEPS = """
import os, time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    recorder.step(step=1 if os.environ["MNTRAIN_ATTEMPT"] == "1" else 2)
    time.sleep(60 if os.environ["MNTRAIN_ATTEMPT"] == "1" else 0.1)
"""


def _restart(_: Ground, run: Run, __: Problem) -> Run:
    return run.with_(restarts=1)


# Ranks among each other

LOSES_A_PEER = """
import os
if os.environ["MNTRAIN_ATTEMPT"] == "1":
    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
"""

MEETS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
"""
FEWER = """
import time
for step in range(3 if dist.get_rank() else 5):
    dist.all_reduce(torch.ones(2))
    if step == 2 and dist.get_rank() == 0:
        time.sleep(3)  # for the other rank to end by itself, before it is ended with this one
"""
OTHER_SIZES = "dist.all_reduce(torch.ones(4 + dist.get_rank()))"

ELSEWHERE = 'import os; os.environ["GLOO_SOCKET_IFNAME"] = "eth9"\n'


ENDS = (
    edit(
        Run(script='import torch; torch.zeros(1, device="cuda")'),
        "use the CPU",
        '"cuda"',
        '"cpu"',
        Kind.NO_CUDA,
    ),
    Trial(Kind.EXCEPTION, lambda _: script(LABELS), "correct the script", _correct_the_data),
    Trial(Kind.EXIT_CODE, lambda _: script(MODE), "see what it printed", _do_what_it_printed),
    Trial(Kind.CRASHED, lambda _: script(CRASH), "see where it crashed", _correct_the_place),
    Trial(
        Kind.NO_MODULE,
        lambda _: script(NO_MODULE),
        "send it with --file",
        lambda _, run, __: run.with_(files={"extra_of_ours.py": "def run(): pass"}),
    ),
    Trial(
        Kind.NO_FILE,
        lambda _: script(NO_FILE),
        "launch with --file",
        lambda _, run, __: run.with_(files={"labels.csv": "1"}),
    ),
    Trial(Kind.NO_PROGRAM, lambda _: script(PROGRAM), "--env PATH=", _find_the_program),
    Trial(
        Kind.NO_SHARED_LIBRARY,
        lambda _: script(LIBRARY),
        "--env LD_LIBRARY_PATH=PATH",
        _find_the_library,
    ),
    Trial(
        Kind.PATH_TOO_LONG,
        _far_away,
        "--env TMPDIR=/tmp",
        lambda _, run, __: run.with_(environment={"TMPDIR": "/tmp"}),
    ),
    Trial(Kind.DAMAGED_FILE, _torn, "to that node again", _copy_again),
    edit(script(OF_ANOTHER), "the same sizes", "(2, 4)", "(2, 3)", Kind.OTHER_MODEL),
    Trial(Kind.NO_DOWNLOAD, _never_downloaded, "give its path", _give_its_path),
    Trial(Kind.NO_PERMISSION, _locked, "permission to read", _permit),
    Trial(Kind.DISK_FULL, _full, "free some space", _free_space),
    Trial(Kind.READ_ONLY, _sealed, "remount it writable", _remount),
    Trial(Kind.FILE_TOO_LARGE, _large, "ulimit -f", _lift_file_size),
    Trial(Kind.TOO_MANY_FILES, lambda _: script(MANY), "ulimit -n", _lift_files),
    Trial(
        Kind.SHARED_MEMORY,
        lambda _: script(SHARES),
        "make /dev/shm larger",
        _enlarge_shared_memory,
    ),
    Trial(
        Kind.OUT_OF_MEMORY,
        lambda _: Run(script=BATCH, arguments=(str(1 << 45),)),
        "a smaller batch",
        _smaller_batch,
    ),
    _killed_by(signal.SIGKILL, "killer"),
    _killed_by(signal.SIGTERM, "time-limit"),
    Trial(Kind.WORKER_DIED, _workers, "use fewer workers", _no_workers),
    Trial(
        Kind.SUPERVISOR_LOST,
        lambda _: Run(script=SLEEPS, meanwhile=_kill_the_supervisor),
        "--restarts",
        _restart,
    ),
    Trial(Kind.UNKNOWN_CAUSE, lambda _: script(LOSES_A_PEER), "--restarts continues", _restart),
    edit(Run(script=MEETS + FEWER, ranks=2), "fewer batches", "3 if", "5 if", Kind.ENDED_EARLY),
    edit(
        Run(script=MEETS + OTHER_SIZES, ranks=2),
        "of the same shape",
        "4 + dist.get_rank()",
        "4",
        Kind.COLLECTIVE_MISMATCH,
    ),
    edit(
        Run(script=ELSEWHERE + MEETS), "choose another interface", "eth9", "lo", Kind.NO_INTERFACE
    ),
)
