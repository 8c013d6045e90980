"""Faults of what a job reads on its nodes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from jupyter_mntrain.agent.machine.facts import find_path
from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.doctor.machine import (
    AskedPath,
    FoundInHub,
    FoundPath,
    PathKind,
    PathUse,
)
from jupyter_mntrain.model.records.doctor.trial import JobTrial, TriedNode
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed

DATA = "/data/corpus"
WHOLE = {"config.json": "600 ab", "model.safetensors": "16000000000"}
"""Files of a model."""
LLAMA = '{"model_type": "llama"}'
LISTING = "model.safetensors.index.json"


def listing(count: int) -> str:
    """An index of weights in so many files."""
    files = [f"model-{at:05d}-of-{count:05d}.safetensors" for at in range(1, count + 1)]
    return json.dumps({"weight_map": {f"{one}.weight": one for one in files}})


def without_script(case: Case) -> Case:
    """A launch names a script by a path of the nodes."""
    for at, node in enumerate(case.nodes):
        assert node.facts is not None
        kind: PathKind = "missing" if at == 1 else "file"
        found = FoundPath(use="script", path="/shared/train.py", kind=kind)
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


def reading(case: Case, kind: PathKind, *, elsewhere: PathKind = "folder") -> Case:
    """A job reads data that lies behind a link; it is so on the second node."""
    for at, node in enumerate(case.nodes):
        of_node = kind if at == 1 else elsewhere
        real = "/mnt/nas/corpus" if of_node == "folder" else ""
        found = FoundPath(use="data", path=DATA, kind=of_node, real_path=real)
        assert node.facts is not None
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


def copies(case: Case, own: dict[str, str]) -> Case:
    """Each node has a copy of a model; the second one's has these files."""
    for at, node in enumerate(case.nodes):
        assert node.facts is not None
        found = FoundPath(
            use="model",
            path=f"/disk{at}/llama",
            kind="folder",
            asked="models:llama",
            files=own if at == 1 else WHOLE,
        )
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


def with_copy(case: Case, files: dict[str, str], use: PathUse = "model") -> Case:
    """Only the second node has a copy of the model, of files of these texts."""
    node = case.nodes[1]
    assert node.facts is not None
    where = "/models/llama"
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        looked = find_path(AskedPath(use=use, path=folder), {})
    assert looked.trouble is not None
    told = msgspec.structs.replace(
        looked.trouble, cause=looked.trouble.cause.replace(folder, where)
    )
    found = FoundPath(use=use, path=where, kind="folder", asked=where, trouble=told)
    return changed(case, 1, paths=(*node.facts.paths, found))


def without_model(case: Case) -> Case:
    """Only the second node lacks a model that each keeps at a place of its own."""
    for at, node in enumerate(case.nodes):
        assert node.facts is not None
        kind: PathKind = "missing" if at == 1 else "folder"
        found = FoundPath(
            use="model",
            path=f"/disk{at}/llama",
            kind=kind,
            asked="models:llama",
            files={} if at == 1 else WHOLE,
        )
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


def tried(case: Case) -> Case:
    """The job was started, and its rank on the second node failed."""
    names = [node.name for node in case.nodes]
    problem = Problem(
        kind=Kind.GPU_OUT_OF_MEMORY,
        cause="CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "15.70 GiB of which 1.13 GiB is free",
        fix="use more and smaller microbatches, or fewer layers on that node",
        node=names[1],
        rank=Rank(1),
    )
    nodes = [TriedNode(name, (rank,), (16.9e9,)) for rank, name in enumerate(names)]
    nodes[1] = msgspec.structs.replace(nodes[1], problem=problem)
    trial = JobTrial(is_recipe=True, nodes=tuple(nodes))
    return msgspec.structs.replace(case, trial=trial)


def without_root(case: Case) -> Case:
    """The agent of the second node was started without a root that a model is named by."""
    with pytest.raises(SpecError) as caught:
        place_of("store:llama", {})
    found = FoundPath(
        use="model",
        path="store:llama",
        kind="unreadable",
        asked="store:llama",
        trouble=caught.value.problem,
    )
    node = case.nodes[1]
    assert node.facts is not None
    return changed(case, 1, paths=(*node.facts.paths, found))


def loading(case: Case, *, holds: bool, is_offline: str = "", free: int = 10**12) -> Case:
    """A script loads a model of the hub, which the second node has not fetched.

    Args:
        holds: whether the others have.
    """
    for at, node in enumerate(case.nodes):
        found = FoundInHub(
            use="model",
            name="meta/llama",
            folder="/home/ann/.cache/huggingface/hub/models--meta--llama",
            is_there=holds and at != 1,
            is_offline=is_offline if at == 1 else "",
            free_bytes=free if at == 1 else 10**12,
        )
        assert node.facts is not None
        case = changed(case, at, hub=(found,))
    return case


WORKLOAD = (
    Fault("deep-step", "its GPU is too small for its part of a step", "stops", tried),
    Fault(
        "hub-files",
        "it has to fetch a model of the Hugging Face hub that the others have",
        "slows",
        lambda case: loading(case, holds=True),
    ),
    Fault(
        "hub-files",
        "it lacks a model of the Hugging Face hub, and its jobs may not ask there",
        "stops",
        lambda case: loading(case, holds=True, is_offline="HF_HUB_OFFLINE"),
    ),
    Fault(
        "hub-files",
        "a model of the Hugging Face hub has to be fetched, and there is no room for it",
        "stops",
        lambda case: loading(case, holds=False, free=10**8),
    ),
    Fault("job-paths", "it lacks the model that the others have", "stops", without_model),
    Fault("job-paths", "it lacks the script that the others have", "stops", without_script),
    Fault(
        "same-files",
        "the configuration of its copy of the model is another one",
        "stops",
        lambda case: copies(case, {"config.json": "600 cd", "model.safetensors": "16000000000"}),
    ),
    Fault(
        "same-files",
        "its copy of the model came in part",
        "stops",
        lambda case: copies(case, {"config.json": "600 ab", "model.safetensors": "9"}),
    ),
    Fault(
        "whole-model",
        "a download left out the weights, and not their index",
        "stops",
        lambda case: with_copy(case, {"config.json": LLAMA, LISTING: listing(1)}),
    ),
    Fault(
        "whole-model",
        "the tokenizer was not copied with the model",
        "stops",
        lambda case: with_copy(case, {"config.json": LLAMA, "vocab.json": "{}"}, "tokenizer"),
    ),
    Fault("whole-model", "its folder is empty", "stops", lambda case: with_copy(case, {})),
    Fault(
        "whole-model",
        "it has only weights that the trainer does not read",
        "stops",
        lambda case: with_copy(case, {"config.json": LLAMA, "model.gguf": "9"}),
    ),
    Fault(
        "whole-model",
        "one of three files of its weights is missing",
        "stops",
        lambda case: with_copy(
            case,
            {
                "config.json": LLAMA,
                LISTING: listing(3),
                **{f"model-0000{at}-of-00003.safetensors": "9" for at in (1, 3)},
            },
        ),
    ),
    Fault(
        "whole-model",
        "its weights are quantized",
        "stops",
        lambda case: with_copy(
            case,
            {
                "config.json": '{"model_type": "llama", '
                '"quantization_config": {"quant_method": "awq"}}'
            },
        ),
    ),
    Fault(
        "whole-model",
        "no description of its family is there",
        "stops",
        lambda case: with_copy(case, {"config.json": '{"model_type": "bloom"}'}),
    ),
    Fault(
        "whole-model",
        "it is an adapter",
        "stops",
        lambda case: with_copy(case, {"adapter_config.json": "{}"}),
    ),
    Fault(
        "imported-modules",
        "a script imports pandas, which it lacks",
        "stops",
        lambda case: changed(case, lacking=("pandas",)),
    ),
    Fault(
        "imported-modules",
        "a script imports a function that its older torch does not have",
        "stops",
        lambda case: changed(case, lacking=("torch.distributed.fsdp:fully_shard",)),
    ),
    Fault(
        "job-paths",
        "a job's data is a link on the other nodes, and missing on one",
        "stops",
        lambda case: reading(case, "missing"),
    ),
    Fault(
        "job-paths",
        "it has no root by the name that the model is in",
        "stops",
        without_root,
    ),
    Fault(
        "job-paths",
        "a job's data belongs to another user",
        "stops",
        lambda case: reading(case, "unreadable"),
    ),
)
