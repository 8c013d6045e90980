"""Loading a stage of a large model: memory and time of each rank.

    python -m benchmarks.loading [--gb 8] [--stages 2] [--dtype bfloat16] [--directory DIR]

Writes a synthetic Hugging Face checkpoint (Llama, bfloat16, sharded safetensors with an index),
has each rank load its own stage as the trainer does, then write to every weight as a first step
would, and deletes the checkpoint. In float32, 8 GB of files take 16 GB of memory. A rank's peak is
measured in two ways:

- *own* memory (RssAnon), which the kernel cannot reclaim. Mapped files cost nothing here until they
  are written to.
- *resident* memory (VmHWM): everything, including mapped file pages (RssFile), which the kernel
  reclaims when memory is short.

Both must stay below 1.15 x the stage's bytes, in addition to the interpreter with torch and
transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REQUIRED_RATIO = 1.15
SAMPLED_EVERY_S = 0.005
SHARD_BYTES = 2 << 30
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
"""The shape of an 8B model with a smaller vocabulary, so that fewer layers make 8 GB."""


def main() -> int:
    arguments = _arguments()
    if arguments.rank is not None:
        print(json.dumps(_load(arguments)))
        return 0
    free = shutil.disk_usage(arguments.directory or tempfile.gettempdir()).free
    if free < 1.2e9 * arguments.gb:
        print(f"loading: {arguments.gb} GB do not fit: {free / 1e9:.1f} are free", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        begun = time.perf_counter()
        size = write_checkpoint(Path(directory), arguments.gb)
        print(f"wrote {size / 1e9:.2f} GB in {time.perf_counter() - begun:.0f} s", flush=True)
        ranks = _ranks(Path(directory), arguments)
    return _report(ranks, arguments)


def write_checkpoint(directory: Path, gb: float) -> int:
    """Write a checkpoint of about this size, one tensor at a time; its size in bytes."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, LlamaConfig

    per_layer = 436.2e6  # bytes, of SHAPE in bfloat16
    layers = max(2, round((gb * 1e9 - 524e6) / per_layer))
    config = LlamaConfig(**SHAPE, num_hidden_layers=layers, dtype="bfloat16")
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(directory)
    with torch.device("meta"):
        parameters = dict(AutoModelForCausalLM.from_config(config).named_parameters())
    largest = max(one.numel() for one in parameters.values())
    numbers = (torch.randn(largest) * 0.02).to(torch.bfloat16)
    shards: list[dict[str, torch.Tensor]] = [{}]
    for name, like in parameters.items():
        if sum(one.nbytes for one in shards[-1].values()) + 2 * like.numel() > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = numbers[: like.numel()].view(like.shape)
    index = {}
    for number, tensors in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        # safetensors refuses tensors that share memory, so one shard is copied at a time.
        save_file({name: one.clone() for name, one in tensors.items()}, directory / file)
        index |= dict.fromkeys(tensors, file)
    size = sum(2 * one.numel() for one in parameters.values())
    content = {"metadata": {"total_size": size}, "weight_map": index}
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))
    return size


class Peaks:
    """Peak of each kind of memory of this process, in bytes, sampled by a thread."""

    def __init__(self) -> None:
        self.most = dict.fromkeys(("RssAnon", "RssFile", "VmRSS", "VmHWM"), 0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, int]:
        self._is_over.set()
        self._thread.join()
        self._sample()
        return self.most

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLED_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        now = memory()
        self.most = {name: max(size, now[name]) for name, size in self.most.items()}


def memory() -> dict[str, int]:
    """Memory of this process in bytes, by the kernel's names."""
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: 1024 * int(value.split()[0]) for name, value in pairs}


def _load(arguments: argparse.Namespace) -> dict[str, float]:
    """One rank's memory in bytes: baseline, peak while loading, peak after the first writes."""
    import torch

    from jupyter_mntrain.recipe.layout import lay_out
    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.train.model.decoder import read_config
    from jupyter_mntrain.train.model.stages import build_modules
    from jupyter_mntrain.train.world import join_world

    settings = [f"model.path={arguments.directory}", f"model.dtype={arguments.dtype}"]
    recipe = parse_recipe("", settings)
    config = read_config(recipe.model)
    layout = lay_out(recipe, arguments.stages, config.num_hidden_layers)
    with join_world("cpu", 600) as world:
        torch.distributed.barrier()  # all load at once, as in a job
        before = memory()
        loading = Peaks()
        begun = time.perf_counter()
        modules = build_modules(recipe, config, layout, world.rank, world.device)
        took_s = time.perf_counter() - begun
        loaded = loading.end()
        parameters = [one for part in modules.values() for one in part.parameters()]
        writing = Peaks()
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(1)
        written = writing.end()
        torch.distributed.barrier()
    return {
        "stage": sum(one.nbytes for one in parameters),
        "seconds": took_s,
        "baseline_own": before["RssAnon"],
        "baseline_resident": before["VmHWM"],
        "loading_own": loaded["RssAnon"],
        "loading_file": loaded["RssFile"],
        "loading_resident": loaded["VmHWM"],
        "written_own": written["RssAnon"],
        "written_resident": written["VmHWM"],
    }


def _ranks(directory: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    stages = arguments.stages
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(stages)}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    children = []
    for rank in range(stages):
        words = [sys.executable, "-m", "benchmarks.loading", "--rank", str(rank)]
        words += ["--stages", str(stages), "--directory", str(directory)]
        words += ["--dtype", arguments.dtype]
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        environment = os.environ | shared | own
        children.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE))
    found = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise SystemExit("loading: a rank failed")
    return [json.loads(out.splitlines()[-1]) for out in found]


def _report(ranks: list[dict[str, float]], arguments: argparse.Namespace) -> int:
    worst = 0.0
    for number, one in enumerate(ranks):
        stage = one["stage"]
        print(
            f"rank {number}: stage {stage / 1e9:.2f} GB in {one['seconds']:.1f} s; baseline own "
            f"{one['baseline_own'] / 1e6:.0f} MB, resident {one['baseline_resident'] / 1e6:.0f} MB"
        )
        for what in ("loading", "written"):
            own = (one[f"{what}_own"] - one["baseline_own"]) / stage
            resident = (one[f"{what}_resident"] - one["baseline_resident"]) / stage
            worst = max(worst, own, resident)
            print(f"  {what}: own {own:.3f} x the stage, resident {resident:.3f} x")
    is_met = worst <= REQUIRED_RATIO
    print(f"worst {worst:.3f}, required {REQUIRED_RATIO}: {'met' if is_met else 'NOT met'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(ranks))
    return int(not is_met)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gb", type=float, default=8.0, help="size of the checkpoint")
    parser.add_argument("--stages", type=int, default=2, help="stages, one per rank")
    dtypes = ("bfloat16", "float32")
    parser.add_argument(
        "--dtype", choices=dtypes, default=dtypes[0], help="of the weights in memory"
    )
    parser.add_argument("--directory", type=Path, help="for the temporary checkpoint")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
