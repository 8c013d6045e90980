"""Hub troubles: explains why a model of the Hugging Face hub is not available. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping

from jupyter_mntrain.families.hub_fetching import HubReport
from jupyter_mntrain.launch.files.hub_names import HubId, hub_cache, is_set
from jupyter_mntrain.model.errors import MntrainError, RecipeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_size

_TOKEN = "set HF_TOKEN, or log in with hf auth login"  # noqa: S105 - no token


def hub_error(
    asked: HubId, found: HubReport, environment: Mapping[str, str] = os.environ
) -> MntrainError:
    """Return the error for a report with a problem.

    Args:
        environment: of the program that asked the hub.
    """
    place, page = f"model.path = {asked}", f"{_hub(environment)}/{asked.repo}"
    match found.trouble:
        case "missing":
            cause = f"{place}: no such directory here, and the hub has no such model, or hides it"
            return RecipeError(
                cause,
                fix=f"check the name; for a private model {_TOKEN}; for a directory on the nodes "
                "give its absolute path",
            )
        case "no-revision":
            cause = f"{place}: {asked.repo} has no such branch, tag or commit"
            return RecipeError(cause, fix=f"use one of {page}")
        case "no-config":
            cause = f"{place}: no config.json in it, so it is not a transformers model"
            return RecipeError(cause, fix=f"use one that has it; its files: {page}")
        case "no-weights":
            cause = f"{place}: it has neither safetensors nor .bin weights of transformers"
            return RecipeError(cause, fix=f"use one that has them; its files: {page}")
        case "gated":
            return RefusedError(
                f"{place}: gated, for accounts that have accepted its terms",
                kind=Kind.NOT_ALLOWED,
                fix=f"accept them at {page}, and {_TOKEN}",
            )
        case "full":
            needs = rough_size(found.total_bytes) if found.total_bytes else "its files"
            free = f", and {rough_size(int(found.said))} are free" if found.said.isdigit() else ""
            return RefusedError(
                f"{place}: {needs} do not fit into {hub_cache(environment)}{free}",
                kind=Kind.DISK_FULL,
                fix="free some space there, or set HF_HOME to a folder on a larger disk",
            )
        case "no-library":
            return RefusedError(
                f"{place}: huggingface_hub cannot be loaded here: {found.said}",
                kind=Kind.MISSING_LIBRARY,
                fix="pip install huggingface_hub",
            )
    return _not_had(asked, found, environment)


def hub_note(asked: HubId, found: HubReport) -> Problem | None:
    """Return a note if a report may be of an older commit than the hub has now."""
    if not found.is_offline or asked.revision == found.commit:
        return None
    return Problem(
        kind=Kind.NO_ANSWER,
        cause=f"model.path = {asked}: the hub did not answer ({found.said}); commit "
        f"{found.commit} of this machine's cache is used",
        fix=f"to keep using that commit: model.path = {HubId(asked.repo, found.commit)}",
    )


def _not_had(asked: HubId, found: HubReport, environment: Mapping[str, str]) -> RefusedError:
    """Return the error if the hub does not answer, or something else went wrong."""
    why = f"this machine cannot reach {_hub(environment)} ({found.said})"
    if found.trouble == "other":
        why = f"fetching it from {_hub(environment)} failed: {found.said}"
    elif is_set(environment, "HF_HUB_OFFLINE"):
        why = "HF_HUB_OFFLINE keeps this machine from asking the hub"
    cause = f"{hub_cache(environment)} does not have all of this model, and {why}"
    is_plain = asked == HubId(asked.repo)
    revision = "" if is_plain else f" --revision {asked.revision}"
    fix = f"where there is internet: hf download {asked.repo}{revision} --local-dir DIR; bring "
    fix += "DIR here, and set model.path to it"
    if is_plain:  # it may have been meant as a folder
        cause = f"no such directory here; {cause}"
        fix = f"check the path; for a model of the hub, {fix}"
    return RefusedError(f"model.path = {asked}: {cause}", kind=Kind.NO_FILE, fix=fix)


def _hub(environment: Mapping[str, str]) -> str:
    return environment.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
