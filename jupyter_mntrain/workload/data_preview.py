"""Data preview: what a recipe's data turns into, read on this machine without starting a job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from jupyter_mntrain.launch.files.hub_names import hub_id, snapshot
from jupyter_mntrain.model.errors import RecipeError, SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.running_changes import SET
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.model.records.sequences import DataPreview
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.workload.workload import Workload


def preview_data(workload: Workload, directory: Path) -> DataPreview:
    """Read the recipe's data in a separate process, which may import the trainer.

    Args:
        directory: relative paths begin there.

    Raises:
        RecipeError: the recipe does not fit the data, or these are not on this machine.
        SpecError: the process ends without a word.
    """
    with TemporaryDirectory() as folder:
        recipe = Path(folder) / RECIPE_FILE
        recipe.write_text(workload.files[RECIPE_FILE], encoding="utf-8")
        command = [sys.executable, "-m", f"{TRAINER}.previewing", str(recipe), *workload.entry[3:]]
        named = None if workload.recipe is None else hub_id(workload.recipe.model.path)
        if named is not None and (cached := snapshot(named)) is not None:
            command += [SET, f"model.path={json.dumps(str(cached))}"]
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=False)
    try:
        if done.returncode == 0:
            return msgspec.json.decode(done.stdout, type=DataPreview)
        problem = msgspec.json.decode(done.stdout, type=Problem)
    except msgspec.MsgspecError:
        cause = f"reading the data ended with exit code {done.returncode}"
        raise SpecError(cause, fix="see what it has printed above") from None
    raise RecipeError.of(problem)
