"""Asked paths: paths of a job that the doctor looks for on its nodes. Pure."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.doctor.machine import (
    MOST_ASKED,
    AskedPath,
    HubName,
    MachineQuestion,
)
from jupyter_mntrain.model.records.job import JobSpec

HUB_VARIABLES: Final = frozenset(
    {
        *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"),
        *("TRANSFORMERS_OFFLINE", "XDG_CACHE_HOME"),
    }
)
"""Variables that say where things of the Hugging Face hub are kept; none is a secret."""

_LOADERS: Final[Mapping[str, Literal["model", "data"]]] = {
    "from_pretrained": "model",
    "snapshot_download": "model",
    "load_dataset": "data",
}
_OF_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def hub_names(text: str) -> tuple[HubName, ...]:
    """Return what Python code loads from the Hugging Face hub by a literal name.

    Not what it names elsewhere, too: that may be a folder that it writes.
    """
    tree = list(ast.walk(ast.parse(text)))
    loads = [
        HubName(use=_LOADERS[_called(one)], name=name.value)
        for one in tree
        if isinstance(one, ast.Call) and _called(one) in _LOADERS
        for name in one.args[:1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    ]
    spelled = Counter(one.value for one in tree if isinstance(one, ast.Constant))
    loaded = Counter(one.name for one in loads)
    names = (one for one in dict.fromkeys(loads) if spelled[one.name] == loaded[one.name])
    return tuple(one for one in names if _OF_HUB.fullmatch(one.name))[:MOST_ASKED]


def _called(call: ast.Call) -> str:
    """Return the last part of the name of the called function."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def question_of_job(spec: JobSpec) -> MachineQuestion:
    """Return what the doctor asks for before a job runs again.

    Raises:
        RecipeError: its recipe is not valid.
    """
    return MachineQuestion(
        python=spec.python,
        paths=(*_own_paths(spec), *program_of(spec).asked_paths()),
        hub=_hub_of(spec),
        hub_variables={
            name: spec.environment[name] for name in HUB_VARIABLES & spec.environment.keys()
        },
    )


def _hub_of(spec: JobSpec) -> tuple[HubName, ...]:
    """Return what the script of a job loads from the hub, if it is sent with the job."""
    text = spec.files.get(spec.entry[0])
    try:
        return () if text is None else hub_names(text)
    except SyntaxError:  # of another Python's
        return ()


def _own_paths(spec: JobSpec) -> Iterator[AskedPath]:
    """Yield the folder that a job runs in, and its script unless that is sent."""
    if spec.workdir is not None:
        yield AskedPath(use="working directory", path=spec.workdir)
    script = spec.entry[0]
    if spec.runs_program and "/" not in script:  # on the nodes' PATH
        return
    if script.startswith("/"):
        yield AskedPath(use="script", path=script)
    elif spec.workdir is not None and script != "-m" and script not in spec.files:
        yield AskedPath(use="script", path=f"{spec.workdir}/{script}")
