"""Faults of a script and its surroundings: mostly before the first step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Channels, Moment, Truth
from tests.faults.search.mechanisms.mechanism import (
    Code,
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    coded,
)
from tests.faults.search.mechanisms.truths import FAILED, GOES_ON, START_S, leaves, rank_of
from tests.faults.search.vocabulary import (
    ALL_WAIT,
    BAD_ARGUMENT,
    BAD_SCRIPT,
    BUSY,
    CRASHED,
    EXCEPTION,
    LONE,
    MISMATCH,
    NO_FILE,
    NO_GPU,
    NO_GRADIENT,
    NO_INTERFACE,
    NO_MODULE,
    NO_PERMISSION,
    NOT_FINITE,
    RENDEZVOUS,
    SYMPTOM,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

STARTS: tuple[Moment, ...] = ("launch", "before step 1", "before step 1", "restart")

_MODULES = ("apex", "flash_attn", "deepspeed_kernels", "xformers", "mymodel.layers", "bitsandbites")
_FILES = ("/data/train.bin", "/mnt/shared/tokens-00.npy", "vocabulary.json", "../shards/7.parquet")


def _fails(setting: Setting, kinds: frozenset[str], vague: frozenset[str] = frozenset()) -> Truth:
    return Truth(rank_of(setting, kinds, vague), states=FAILED)


def _module(setting: Setting) -> Code:
    name = setting.chance.choice(_MODULES)
    how = setting.chance.choice(
        (f"import {name}", f"from {name} import *", f"__import__({name!r})")
    )
    return Code(how, _fails(setting, NO_MODULE))


def _name_in_module(setting: Setting) -> Code:
    """An older version of a library, without what is imported."""
    how = setting.chance.choice(
        ("from torch.nn import FlexLinear", "from json import loadz", "import math; math.tau2")
    )
    return Code(how, _fails(setting, EXCEPTION | NO_MODULE))


def _file(setting: Setting) -> Code:
    name = setting.chance.choice(_FILES)
    how = setting.chance.choice(
        (f"open({name!r})", f"Path({name!r}).read_bytes()", f"torch.load({name!r})")
        if setting.moment != "launch"
        else (f"open({name!r})", f"Path({name!r}).read_bytes()")
    )
    return Code(how, _fails(setting, NO_FILE))


def _permission(setting: Setting) -> Code:
    """The agent's user may not read what the person who wrote the script may."""
    text = f"""
path = Path('{setting.chance.choice(("tokens", "model"))}-{setting.chance.randrange(99)}.bin')
path.write_text('')
path.chmod(0)
os.seteuid(65534)
try:
    open(path)
finally:
    os.seteuid(0)
"""
    why = "the script itself makes the file, takes its permissions, and becomes another user"
    return Code(text, _fails(setting, NO_PERMISSION), unforeseeable=why)


def _syntax(setting: Setting) -> Code:
    text = setting.chance.choice(
        ("def load(:\n    pass", "for batch in batches\n    pass", "  x = 1\n y = 2", "print 'x'")
    )
    return Code(text, _fails(setting, BAD_SCRIPT))


def _environment(setting: Setting) -> Code:
    """One rank reads a variable that its node lacks, or a bad one."""
    name = setting.chance.choice(("DATA_ROOT", "HF_HOME_X", "WANDB_KEY", "SCRATCH_DIR"))
    how = setting.chance.choice((f"os.environ[{name!r}]", f"int(os.environ.get({name!r}, ''))"))
    why = "" if how.startswith("os.") else "int() of its default fails: it has to be run to know"
    return Code(how, _fails(setting, EXCEPTION), unforeseeable=why)


def _cuda(setting: Setting) -> Code:
    how = setting.chance.choice(
        (
            "torch.zeros(1).cuda()",
            "torch.zeros(1, device='cuda:0')",
            "torch.cuda.set_device(0)",
            "dist.init_process_group('nccl')",
            "torch.cuda.current_device()",
            "torch.cuda.synchronize()",
        )
    )
    return Code(how, _fails(setting, NO_GPU, EXCEPTION))


def _interface(setting: Setting) -> Code:
    """Only this rank looks for an interface that its node lacks."""
    text = f"os.environ['GLOO_SOCKET_IFNAME'] = '{setting.chance.choice(('ib0', 'enp9s0'))}'"
    return Code(text, _fails(setting, NO_INTERFACE))


def _world(setting: Setting) -> Code:
    """This rank believes in another world than the others."""
    text = setting.chance.choice(
        (
            "os.environ['WORLD_SIZE'] = str(WORLD + 1)",
            "os.environ['MASTER_PORT'] = '29999'",
            "os.environ['MASTER_ADDR'] = '10.77.2.3'",
            "os.environ['RANK'] = str((RANK + 1) % WORLD)",
        )
    )
    accepts = (Accept(RENDEZVOUS, ALL_WAIT | SYMPTOM | EXCEPTION | BUSY),)
    return Code(text, Truth(accepts, within_s=START_S))


def _late(setting: Setting) -> Code:
    """One rank loads longer than the others: they wait, and nothing is wrong."""
    return Code(f"time.sleep({setting.chance.choice((20, 30))})", GOES_ON)


def _lone(setting: Setting) -> Code:
    """Every rank trains on its own: nothing was ever exchanged."""
    text = """
os.environ['WORLD_SIZE'] = '1'
os.environ['RANK'] = '0'
os.environ['TORCHELASTIC_USE_AGENT_STORE'] = 'False'
os.environ['MASTER_ADDR'] = '127.0.0.1'
os.environ['MASTER_PORT'] = str(31000 + os.getpid() % 999)
options.style = 'reduce'
options.steps = 60
"""
    channels: Channels = frozenset({"other", "cause", "stall"})
    accept = Accept(LONE, channels=channels)
    return Code(text, Truth((accept,), within_s=20.0), exits_0=True, everywhere=True)


def _version(setting: Setting) -> Code:
    """An older copy of the script on one node: another model."""
    size = setting.chance.choice((1_000, 200_000, 260_000))
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | ALL_WAIT | SYMPTOM),)
    return Code(f"payload = torch.zeros({size})", Truth(accepts, within_s=START_S))


def _nan(setting: Setting) -> Code:
    value = setting.chance.choice(("float('nan')", "float('inf')", "torch.tensor(float('nan'))"))
    truth = Truth(rank_of(setting, NOT_FINITE), is_harmless=True, within_s=15.0)
    return Code(f"reported['loss'] = {value}", truth)


def _zero(setting: Setting) -> Code:
    truth = Truth(rank_of(setting, NO_GRADIENT), is_harmless=True, within_s=20.0)
    return Code("reported['grad_norm'] = 0.0", truth)


def _data(setting: Setting) -> Code:
    """A broken line of data."""
    text = setting.chance.choice(
        (
            "import json\nfor line in ['{}', '{\"text\": ']: json.loads(line)",
            "'caf\\xe9'.encode('latin-1').decode()",
            "import csv, io; next(csv.DictReader(io.StringIO('a,b\\n1,2')))['text']",
            "next(iter([]))",
            "torch.nn.Embedding(10, 4)(torch.tensor([11]))",
            "import zipfile; zipfile.ZipFile('/dev/null')",
        )
    )
    return Code(text, _fails(setting, EXCEPTION))


def _batches(setting: Setting) -> Code:
    """One rank has fewer batches, and ends well."""
    return Code("options.steps = 7", leaves(setting), exits_0=True)


def _argument(setting: Setting) -> Drawn:
    wrong = setting.chance.choice((["--bogus"], ["--steps", "many"], ["--style"]))
    return Drawn(Truth((Accept(BAD_ARGUMENT),), states=FAILED, exit_code=2), {"arguments": wrong})


@contextmanager
def _nothing(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Only words of the launch are wrong."""
    yield


def _variable(setting: Setting) -> Drawn:
    words, truth = setting.chance.choice(
        (
            (
                ["--env", "GLOO_SOCKET_IFNAME=ib0"],
                Truth((Accept(NO_INTERFACE | frozenset({"bad-spec"})),), within_s=START_S),
            ),
            (
                ["--env", "PYTHONHOME=/nowhere"],
                Truth(
                    (
                        Accept(
                            frozenset({"wrong-environment", "not-started"}),
                            frozenset({"exit-code", "crashed", "no-module", "exception"}),
                        ),
                    ),
                    within_s=START_S,
                ),
            ),
            (
                ["--env", "MASTER_PORT=1"],
                Truth((Accept(frozenset({"bad-spec", "bad-command"})),), within_s=START_S),
            ),
        )
    )
    return Drawn(truth, {"words": words})


SCRIPT: tuple[Mechanism, ...] = (
    coded("a missing module", "script", _module, moments=STARTS, weight=3),
    coded("an older library", "script", _name_in_module, moments=STARTS, weight=1),
    coded("a missing file", "script", _file, moments=STARTS, weight=3),
    coded("a file without permission", "script", _permission, moments=STARTS),
    coded("a syntax error", "script", _syntax, moments=STARTS),
    coded("a missing variable", "script", _environment, moments=STARTS),
    coded("no CUDA", "script", _cuda, moments=("before step 1", "restart"), weight=3),
    coded("another interface", "script", _interface, moments=("before step 1",)),
    coded("another world", "script", _world, moments=("before step 1",), weight=3),
    coded("a rank that is late", "script", _late, moments=("before step 1",), weight=1),
    coded("lone ranks", "script", _lone, moments=("before step 1",), weight=2),
    coded("another version of the script", "script", _version, moments=("before step 1",)),
    coded("a loss that is not finite", "script", _nan, weight=3),
    coded("gradients of zero", "script", _zero, weight=1),
    coded(
        "broken data",
        "script",
        _data,
        moments=("steps", "before step 1", "save"),
        weight=3,
        pairs=True,
    ),
    coded("fewer batches", "script", _batches, moments=("before step 1",), weight=2),
    Mechanism("a wrong argument", "script", _argument, _nothing, ("launch",), spoils=True),
    Mechanism("a wrong variable", "script", _variable, _nothing, ("launch",), spoils=True),
)
