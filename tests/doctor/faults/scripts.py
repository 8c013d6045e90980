"""Faults of a script, its arguments and its options, which is to be launched on the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.doctor.check import Case, PendingJob, Unsent
from jupyter_mntrain.doctor.script.needs import read_script
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import FoundPath
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed, loaded, with_node

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
options = parser.parse_args()
"""

REQUIRED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)
options = parser.parse_args()
"""


def launching(
    case: Case,
    text: str,
    arguments: Sequence[str] = (),
    *,
    unsent: dict[str, Unsent] | None = None,
    **fields: object,
) -> Case:
    """A script is to be launched, with the second node as its head."""
    job = PendingJob(
        head="muthur",
        is_gloo=True,
        name="train.py",
        script=read_script(text, arguments),
        unsent=unsent or {},
        **fields,
    )
    return msgspec.structs.replace(case, job=job)


def reading(case: Case) -> Case:
    """A script reads a file, which is missing on the second node."""
    return with_input(launching(case, "open('/data/words.json')"), "/data/words.json")


def with_input(case: Case, path: str, content: str = "") -> Case:
    """A file of all nodes, which the second one lacks, or has with other content."""
    for at, node in enumerate(case.nodes):
        assert node.facts is not None
        found = FoundPath(
            use="input",
            path=path,
            asked=path,
            kind="missing" if at == 1 and not content else "file",
            files={"words.json": content if at == 1 else "12 0123456789abcdef"} if content else {},
        )
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


def in_folder(case: Case, content: str = "") -> Case:
    """A script reads a file by a relative path, in a folder of the nodes."""
    placed = {"words.json": "/shared/words.json"}
    case = launching(case, "open('words.json')", placed=placed)
    return with_input(case, placed["words.json"], content)


def given(case: Case) -> Case:
    """An argument names a file of that folder."""
    placed = {"words.json": "/shared/words.json"}
    case = launching(case, "", ("--data", "words.json"), given=placed)
    return with_input(case, placed["words.json"])


def only_on_second(case: Case) -> Case:
    return msgspec.structs.replace(case, nodes=case.nodes[1:2])


def refused(case: Case) -> Case:
    problem = Problem(
        kind=Kind.NO_INTERFACE,
        cause="has no interface eth9 (it has eno1)",
        fix="choose one of them, or omit it",
        node="muthur",
    )
    return msgspec.structs.replace(launching(case, ""), refused=problem)


def with_home(case: Case) -> Case:
    """The job's own PYTHONHOME is nowhere on the second node."""
    error = "ModuleNotFoundError: No module named 'encodings'"
    failed = msgspec.structs.replace(loaded(), error=error, torch=None, has_started=False)

    def give(node):
        return msgspec.structs.replace(node, given={"PYTHONHOME": "/nowhere"})

    return with_node(changed(case, loaded=failed), give)


SCRIPTS = (
    Fault(
        "script-gpus",
        "the script, which runs on it alone, computes on CUDA in any case, and it has no GPU",
        "stops",
        lambda case: only_on_second(launching(case, "import torch\ntorch.ones(1, device='cuda')")),
    ),
    Fault(
        "script-gpus",
        "the script, which runs on it alone, ends where it does not count enough GPUs",
        "slows",
        lambda case: only_on_second(
            launching(case, "import sys, torch\nif torch.cuda.device_count() < 2:\n    sys.exit()")
        ),
    ),
    Fault(
        "script-variables",
        "the script, which runs on it alone, takes its rank from a variable of mpirun",
        "stops",
        lambda case: only_on_second(
            launching(case, "import os\nos.environ['OMPI_COMM_WORLD_LOCAL_RANK']")
        ),
    ),
    Fault(
        "script",
        "the script requires the argument that torch.distributed.launch gave",
        "stops",
        lambda case: launching(case, REQUIRED),
    ),
    Fault(
        "script",
        "next to the script lies a module that hides one of Python's",
        "slows",
        lambda case: msgspec.structs.replace(
            case, job=msgspec.structs.replace(launching(case, "").job, hides=("random.py",))
        ),
    ),
    Fault(
        "script",
        "the script tells Lightning another number of nodes",
        "slows",
        lambda case: launching(
            case, "import lightning as L\nL.Trainer(devices=1, num_nodes=1)", nodes=2
        ),
    ),
    Fault(
        "interface-names",
        "the script, which runs on it alone, sets an interface that it does not have",
        "stops",
        lambda case: only_on_second(
            launching(case, "import os\nos.environ['GLOO_SOCKET_IFNAME'] = 'eth9'")
        ),
    ),
    Fault("launch", "the launch names an interface that it does not have", "stops", refused),
    Fault(
        "script",
        "the script has a syntax error",
        "stops",
        lambda case: launching(case, "def load(:\n    pass"),
    ),
    Fault(
        "script",
        "the launch gives the script an option that it does not have",
        "stops",
        lambda case: launching(case, ARGPARSE, ("--bogus",)),
    ),
    Fault(
        "imported-modules",
        "a function of the script imports pandas, which it lacks",
        "slows",
        lambda case: changed(
            launching(case, "def main():\n    import pandas"), lacking=("pandas",)
        ),
    ),
    Fault(
        "script-variables",
        "the script takes a variable that only the others have",
        "stops",
        lambda case: changed(
            launching(case, "import os\nos.environ['DATA_ROOT']"), unset=("DATA_ROOT",)
        ),
    ),
    Fault(
        "script-variables",
        "the script asks for a variable that is set here, and not there",
        "slows",
        lambda case: changed(
            launching(
                case,
                "import os\nos.getenv('DATA_ROOT', '/data')",
                set_here=frozenset({"DATA_ROOT"}),
            ),
            unset=("DATA_ROOT",),
        ),
    ),
    Fault("script-files", "the script reads a file that only the others have", "stops", reading),
    Fault(
        "script-files",
        "it lacks a file that the script opens by a relative path, in the folder of --workdir",
        "stops",
        in_folder,
    ),
    Fault(
        "script-files",
        "it lacks a file of the folder of --workdir that an argument names",
        "slows",
        given,
    ),
    Fault(
        "same-files",
        "a file that the script opens by a relative path has other content",
        "slows",
        lambda case: in_folder(case, "12 fedcba9876543210"),
    ),
    Fault(
        "script-files",
        "the script, which runs on it alone, reads a file that is not sent with it",
        "slows",
        lambda case: only_on_second(
            launching(case, "open('words.json')", unsent={"words.json": Unsent()})
        ),
    ),
    Fault(
        "script-files",
        "the script, which runs on it alone, reads a file of its project that git ignores",
        "slows",
        lambda case: only_on_second(
            launching(
                case, "open('data.bin')", unsent={"data.bin": Unsent("the line !data.bin in …")}
            )
        ),
    ),
    Fault(
        "script-files",
        "an argument of the script, which runs on it alone, names a file that is not sent with it",
        "slows",
        lambda case: only_on_second(
            launching(case, "", unsent_arguments={"conf/a.yaml": "--file conf/a.yaml"})
        ),
    ),
    Fault(
        "script-files",
        "arguments of the script, which runs on it alone, name a file and a folder that are not "
        "sent with it",
        "slows",
        lambda case: only_on_second(
            launching(case, "", unsent_arguments={"a.txt": "--file a.txt", "m": "--file m"})
        ),
    ),
    Fault(
        "script-files",
        "the script, which runs on it alone, loads a file of variables that is not sent with it",
        "slows",
        lambda case: only_on_second(
            launching(case, "open('.env')", unsent={".env": Unsent("--file .env")})
        ),
    ),
    Fault(
        "torch-import",
        "the launch gives it a PYTHONHOME that is not there",
        "stops",
        with_home,
    ),
)
