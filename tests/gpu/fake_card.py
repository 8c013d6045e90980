"""A fake card: traces steps of the trainer on "cuda" where there is none, with fake tensors.

    python -m tests.gpu.fake_card GUARD.so < CASES.json

Tensors have shapes and devices but no values, and process groups send nothing. What mixes tensors
of a CPU and a GPU fails as on a real card.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.gpu.watches import our_place

VOCABULARY = 320
STEPS = 2


def build_guard(directory: Path) -> Path:
    """Compile ``guard.cpp``, which takes a second or two."""
    import importlib.util

    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent
    library, made = torch / "lib", directory / "guard.so"
    command = ["g++", "-shared", "-fPIC", "-std=c++20", "-O0", f"-I{torch / 'include'}"]
    command += [str(Path(__file__).with_name("guard.cpp")), "-o", str(made)]
    command += [f"-L{library}", f"-Wl,-rpath,{library}", "-lc10", "-ltorch_cpu"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made


def main() -> None:
    ctypes.CDLL(sys.argv[1])  # before torch, which looks only once
    for case in json.load(sys.stdin):
        try:
            told: dict[str, Any] = trace(case)
        except Exception as error:  # noqa: BLE001  # it is what the test asks for
            while error.__cause__ is not None:  # torch wraps what happens in a stage
                error = error.__cause__
            frames = traceback.extract_tb(error.__traceback__)
            told = {
                "error": f"{type(error).__name__}: {error}",
                "at": [f"{one.filename}:{one.lineno}" for one in frames],
            }
        print(json.dumps({"case": case["name"]} | told), flush=True)
    # The threads of autograd's fake device never end.
    os._exit(0)


def trace(case: dict[str, Any]) -> dict[str, Any]:
    """Trace a rank's steps; return the devices of all that lasts."""
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from jupyter_mntrain.train.model import weights

    dist.init_process_group("fake", store=FakeStore(), rank=case["rank"], world_size=case["ranks"])
    # A fake group sends nothing, and a fake card draws no random numbers.
    dist.all_gather_object = _everybody_says
    torch.cuda.get_rng_state = lambda _device=None: None
    torch.cuda.Event = lambda **_: SimpleNamespace(record=_recorded, synchronize=lambda: None)
    torch.cuda.current_stream = _stream
    torch.cuda.set_rng_state = lambda _state, _device=None: None
    torch.cuda.get_device_capability = lambda _device=None: (8, 0)
    torch.cuda.get_device_name = lambda _device=None: "fake"
    torch.cuda.get_device_properties = lambda _device=None: SimpleNamespace(total_memory=80 << 30)
    torch.Tensor.pin_memory = _pinned
    # Tensors are fake in one thread only.
    weights.ThreadPoolExecutor = _OneThread
    try:
        with FakeTensorMode(), _values() as reads:
            return _steps(case, reads)
    finally:
        dist.destroy_process_group()


class _OneThread:
    """An executor that does everything at once."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> _OneThread:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Any, *given: Any) -> Any:
        return map(function, *given)


def _recorded(_stream: Any = None) -> None: ...


def _stream(device: Any = None) -> None:
    """As torch's, which a CPU has none of."""
    if device is not None and device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")


def _pinned(tensor: Any, _device: Any = None) -> Any:
    """Pinned memory is written element by element, so none may share its place with another."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in sizes):
        raise RuntimeError("more than one element refers to a single place")
    return tensor


def _everybody_says(said: list[Any], mine: Any, group: Any = None) -> None:
    said[:] = [mine] * len(said)


def _values() -> Any:
    """Give every tensor whose value is asked for the value 1, and note who asks a GPU's."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Values(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.places: list[str] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is not torch.ops.aten._local_scalar_dense.default:
                return func(*args, **(kwargs or {}))
            if args[0].device.type == "cuda":
                self.places.append(our_place())
            return 1.0 if args[0].dtype.is_floating_point else 1

    return Values()


def _steps(case: dict[str, Any], reads: Any) -> dict[str, Any]:
    import torch

    from jupyter_mntrain.recipe.layout import lay_out, make_grid
    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.train.checkpoint.saving import staging
    from jupyter_mntrain.train.data.batches import Batch
    from jupyter_mntrain.train.model.decoder import read_config
    from jupyter_mntrain.train.model.stages import build_modules
    from jupyter_mntrain.train.optimizer.optimizer import Optimizer
    from jupyter_mntrain.train.pipeline.pipeline import Pipeline
    from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
    from jupyter_mntrain.train.world import World, form_groups

    recipe = parse_recipe("", case["settings"])
    device = torch.device("cuda", 0)
    world = World(case["rank"], 0, case["ranks"], "here", device)
    grid = make_grid(recipe, world.size)
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, world.size, config.num_hidden_layers)
    modules = build_modules(recipe, config, layout, grid.place_of(world.rank), device)
    meter = StageMeter(Stopwatch(torch.device("cpu")))
    groups = form_groups(world, recipe, grid, layout)
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    pipeline.measure()
    optimizer = Optimizer(recipe, pipeline.parameters(), pipeline.counted_once())
    shape = (recipe.train.batch_size, recipe.data.sequence_length)
    if case["name"] == "sabotaged":
        _leave_on_cpu(modules[0])
    ids = torch.zeros(shape, dtype=torch.int64)
    positions = torch.arange(shape[1]).expand(shape)
    reads.places.clear()
    for _ in range(STEPS):
        loss = pipeline.forward_backward(Batch(ids, ids, positions, ids.numel()))
        pipeline.share_gradients()
        _, norm, _ = optimizer.total(loss, optimizer.gradient_squares(), (0, 1))
        optimizer.update(norm)
    lasting = {**pipeline.parameters(), **optimizer.state()}
    generator = torch.zeros(16, dtype=torch.uint8)  # its state is on the host
    staging(device).copies({**lasting, "random": generator})
    devices = {name: str(one.device) for name, one in lasting.items()}
    return {"devices": devices, "norm": str(norm.device), "reads": sorted(set(reads.places))}


def _leave_on_cpu(stage: Any) -> None:
    """As if somebody had forgotten a weight."""
    import torch

    norm = stage.causal.model.norm
    norm.weight = torch.nn.Parameter(torch.ones(norm.weight.shape))


if __name__ == "__main__":
    main()
