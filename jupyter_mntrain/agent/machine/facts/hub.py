"""Hub: what this node keeps of the Hugging Face hub, and whether its jobs may fetch more.

Asks nobody: it looks where huggingface_hub and datasets would look. They read their variables when
they are imported, and a job may have others than the agent.
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_mntrain.launch.files.hub_names import folder_in_cache, hub_home, is_set
from jupyter_mntrain.model.records.doctor.machine import FoundInHub, HubName
from jupyter_mntrain.model.whereabouts import in_home

_FORBIDS: Final = {
    "model": ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    "data": ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"),
}


def find_in_hub(asked: HubName, environment: Mapping[str, str]) -> FoundInHub:
    """Look for a model or data set.

    Args:
        environment: of the job.
    """
    home = hub_home(environment)
    kind = "models" if asked.use == "model" else "datasets"
    folder = folder_in_cache(asked.name, kind, environment)
    forbids = (name for name in _FORBIDS[asked.use] if is_set(environment, name))
    token = in_home(environment.get("HF_TOKEN_PATH") or home / "token")
    return FoundInHub(
        use=asked.use,
        name=asked.name,
        folder=str(folder),
        is_there=_is_whole(folder) or (asked.use == "data" and _is_prepared(asked, home)),
        is_offline=next(forbids, ""),
        has_token=bool(environment.get("HF_TOKEN")) or token.is_file(),
        free_bytes=_free(folder.parent),
    )


def _is_whole(folder: Path) -> bool:
    """A file appears in a snapshot once all of it has come; what has not is in blobs."""
    try:
        is_begun = any(folder.glob("blobs/*.incomplete"))
        return not is_begun and any(one.exists() for one in folder.glob("snapshots/*/*"))
    except OSError:
        return False


def _is_prepared(asked: HubName, home: Path) -> bool:
    """The datasets library keeps what it has prepared, and needs no download any more."""
    return any((home / "datasets").glob(f"{asked.name.replace('/', '___').lower()}/*"))


def _free(path: Path) -> int | None:
    there = next((one for one in (path, *path.parents) if one.exists()), path)
    try:
        found = os.statvfs(there)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
