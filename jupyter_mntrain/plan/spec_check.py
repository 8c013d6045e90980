"""Spec check: refuses a bad job spec, before any node is asked."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.environment import (
    ATTEMPT_VARIABLE,
    CHECKPOINT_VARIABLE,
    FIRST_WORLD_SIZE_VARIABLE,
    JOB_VARIABLE,
    MAIL_VARIABLE,
    METRICS_VARIABLE,
    NODE_VARIABLE,
    ON_NAN_VARIABLE,
    RESUME_FROM_VARIABLE,
    RESUME_STEP_VARIABLE,
    RUN_ATTEMPT_VARIABLE,
    RUN_VARIABLE,
    SAVED_STEP_VARIABLE,
    WEBHOOK_VARIABLE,
    WHOLE_WORLD_SIZE_VARIABLE,
    mail_addresses,
)
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import SPEC_VERSION, JobSpec, Participant
from jupyter_mntrain.model.text.file_name import LONGEST_PART_BYTES, is_long
from jupyter_mntrain.model.text.foreign import is_safe, is_unicode
from jupyter_mntrain.model.text.label import MOST_NOTE_CHARACTERS, JobLabel
from jupyter_mntrain.model.text.secrets import HIDDEN, has_hidden

MOST_NAME_CHARACTERS = 128
"""Limit of a job's name, which is shown in every table and picture of the job."""
FILES_LIMIT_BYTES = tunables.size("launch.files_limit_bytes")

CONDA, UV = "conda:", "uv:"
"""Begin the name of an environment as a job's interpreter."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[^\s@,<>\"\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,255}")
_PROJECT = re.compile(r"[0-9a-f]{64}")

_OWN_OPTIONS = {
    "--nnodes": "choose nodes with --member HOST:N",
    "--nproc-per-node": "choose the number of processes with --member HOST:N",
    "--node-rank": "list the members in the order of their ranks, or name the head with --head",
    "--master-addr": "name the head with --head",
    "--master-port": "use --port",
    "--max-restarts": "use --restarts",
    "--standalone": "omit it",
    "--rdzv-backend": "omit it",
    "--rdzv-endpoint": "name the head with --head, its port with --port",
    "--rdzv-id": "omit it",
    "--log-dir": "omit it; mntrain logs shows the output",
}
"""torchrun options that the launch sets itself, and what to do instead."""

_OWN_VARIABLES = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *(JOB_VARIABLE, ATTEMPT_VARIABLE, NODE_VARIABLE, METRICS_VARIABLE, CHECKPOINT_VARIABLE),
        *(ON_NAN_VARIABLE, FIRST_WORLD_SIZE_VARIABLE, SAVED_STEP_VARIABLE),
        WHOLE_WORLD_SIZE_VARIABLE,
        *(RUN_VARIABLE, RUN_ATTEMPT_VARIABLE, RESUME_FROM_VARIABLE, RESUME_STEP_VARIABLE),
    }
)
"""Variables that torchrun and mntrain set for each rank, whatever the job says."""


def check_spec(spec: JobSpec) -> None:
    """Refuse a spec that cannot work on any cluster.

    Raises:
        SpecError: naming the field or the participant, and the fix.
    """
    if spec.version > SPEC_VERSION:
        raise SpecError(
            f"the job has format version {spec.version}; this version supports {SPEC_VERSION}",
            fix="install a newer jupyter-mntrain",
        )
    check_name(spec.name)
    _check_unicode(spec)
    _check_entry(spec)
    _check_places(spec)
    _check_files(spec)
    _check_surroundings(spec)
    if not spec.participants:
        raise SpecError("no participants", fix="name at least one node")
    for participant in spec.participants:
        _check_participant(participant)
    node, times = Counter(p.node for p in spec.participants).most_common(1)[0]
    if times > 1:
        raise listed_again(node, times)
    if spec.port is not None and not 0 < spec.port <= LAST_PORT:
        raise SpecError(
            f"port {spec.port} is out of range", fix=f"choose a port from 1 to {LAST_PORT}"
        )
    least = spec.min_nodes
    count = len(spec.participants)
    if least is not None and not 1 <= least <= count:
        at_most = "1" if count == 1 else f"1 to {count}"
        raise SpecError(
            f"min_nodes is {least}, but the job has {count} node{'s' * (count != 1)}",
            fix=f"set --min-nodes (min_nodes in a job file) to {at_most}, or omit it to wait "
            "for all",
        )
    if least is not None and not spec.max_restarts:
        raise SpecError(
            f"min_nodes is {least}, which requires restarts, but none are allowed",
            fix="set --restarts (max_restarts in a job file) to at least 1, or omit --min-nodes",
        )
    _check_limits(spec)


def _check_limits(spec: JobSpec) -> None:
    for option, limit_s in (("queue", spec.queue_limit_s), ("lost", spec.lost_limit_s)):
        if limit_s is not None and not 0 < limit_s < math.inf:
            raise SpecError(
                f"--{option}-limit must be a positive time, not {limit_s:g} s",
                fix=f"write it like --{option}-limit 2h, or omit it to wait on",
            )
    capacity = spec.link_capacity_bytes_per_s
    if capacity is not None and not capacity > 0:
        raise SpecError(
            f"link_capacity must be positive, not {capacity} bytes per second",
            fix="use a positive number",
        )


def check_name(name: str) -> None:
    """Refuse a job name that is too long or has unprintable characters.

    Raises:
        SpecError: it is.
    """
    if len(name) > MOST_NAME_CHARACTERS:
        raise SpecError(
            f"the job's name has {len(name)} characters; the limit is {MOST_NAME_CHARACTERS}",
            fix="choose a shorter name",
        )
    if not is_safe(name):
        raise SpecError(
            f"the job's name {name!r} has characters that cannot be shown",
            fix="choose another name",
        )


def check_label(label: JobLabel) -> None:
    """Refuse a name or note that is too long or has unprintable characters.

    Raises:
        SpecError: it is.
    """
    check_name(label.name)
    if len(label.note) > MOST_NOTE_CHARACTERS:
        raise SpecError(
            f"the note has {len(label.note)} characters; the limit is {MOST_NOTE_CHARACTERS}",
            fix="write a shorter one",
        )
    if not is_safe(label.note):
        raise SpecError(
            f"the note {label.note!r} has characters that cannot be shown",
            fix="write it in one line, without control characters",
        )


def listed_again(node: str, times: int) -> SpecError:
    """Return the error for a node that is listed as a participant more than once."""
    return SpecError(
        f"is listed {times} times as a participant",
        fix="name it once with all its processes; if two machines share a name: "
        "mntrain agent run --name",
        node=node,
    )


def _check_entry(spec: JobSpec) -> None:
    if not spec.entry or not spec.entry[0]:
        raise SpecError("nothing to run", fix="name a script, or -m and a module")
    script = spec.entry[0]
    if spec.runs_program:
        if script == "-m":
            raise SpecError(
                "torchrun's --no-python runs a program, not a Python module",
                fix="omit --torchrun=--no-python",
            )
        return  # the entry is sent with the job, or on every node's PATH
    if script == "-m":
        if len(spec.entry) < 2:
            raise SpecError("-m without a module", fix="add the module's name")
        return
    if script.startswith("-"):
        raise SpecError(
            f"{script!r} is not a script",
            fix="start with a script or -m; put torchrun options into torchrun_arguments",
        )
    path = PurePosixPath(script)
    sent = {PurePosixPath(name) for name in spec.files}
    # A project, or a folder on the nodes, may have it.
    is_elsewhere = spec.project is not None or spec.workdir is not None
    if not path.is_absolute() and path not in sent and not is_elsewhere:
        raise SpecError(
            f"the script {script!r} is not sent with the job",
            fix="add it to files, or give its absolute path on the nodes",
        )


def _check_places(spec: JobSpec) -> None:
    if spec.project is not None and not _PROJECT.fullmatch(spec.project):
        raise SpecError(
            f"project {spec.project[:80]!r} is no SHA-256",
            fix="omit it, and name the folder: --project DIR",
        )
    _check_python(spec.python)
    workdir = spec.workdir
    if workdir is None:
        return
    if not workdir.startswith(("/", "~")) or "\0" in workdir:
        raise SpecError(
            f"--workdir {workdir}: not an absolute path",
            fix="give the path that the folder has on the nodes, from / or ~",
        )
    if spec.project is not None:
        raise SpecError(
            "--workdir and --project cannot be used together: the first runs in a folder that the "
            "nodes have, the second sends them one",
            fix="use one of them",
        )


def _check_python(python: str | None) -> None:
    if python is None:
        return
    is_named = python.startswith(CONDA) and python != CONDA and "/" not in python
    path = python.removeprefix(CONDA).removeprefix(UV)
    if "\0" in python or not (is_named or path.startswith(("/", "~"))):
        raise SpecError(
            f"--python {python!r}: neither an absolute path nor an environment",
            fix="give the interpreter's path on the nodes, from / or ~, conda:NAME, or uv:/DIR",
        )


def _check_surroundings(spec: JobSpec) -> None:
    if has_hidden((*spec.entry, *spec.torchrun_arguments)):
        raise SpecError(
            f"a secret among the arguments was left out when the job was written: {HIDDEN}",
            fix="write it there again; or better let the script read a variable: --env NAME",
        )
    for argument in spec.torchrun_arguments:
        option = argument.partition("=")[0].replace("_", "-")
        if option in _OWN_OPTIONS:
            raise SpecError(
                f"torchrun's {option} is set by the launch itself", fix=_OWN_OPTIONS[option]
            )
    for name in spec.environment:
        if not _VARIABLE.fullmatch(name):
            raise SpecError(
                f"{name!r} cannot be a variable's name",
                fix="use letters, digits and '_', a letter or '_' first",
            )
    for name in sorted(_OWN_VARIABLES.intersection(spec.environment)):
        raise SpecError(f"the variable {name} is set for each rank by the launch", fix="omit it")
    if WEBHOOK_VARIABLE in spec.environment:
        _check_webhook(spec.environment[WEBHOOK_VARIABLE])
    for address in mail_addresses(spec.environment.get(MAIL_VARIABLE, "")):
        if not _ADDRESS.fullmatch(address):
            raise SpecError(
                f"{address[:80]!r} in {MAIL_VARIABLE} is not an e-mail address",
                fix="use NAME@HOST, several with commas between them",
            )


def _check_webhook(address: str) -> None:
    """Refuse an address to which no notification can be sent, without showing it: it is
    a secret.
    """
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise SpecError(
            f"the value of {WEBHOOK_VARIABLE} is not the address of a web page",
            fix="begin it with https://",
        )


def _check_unicode(spec: JobSpec) -> None:
    texts = [*spec.entry, *spec.torchrun_arguments, *spec.environment.values()]
    for what, text in [("an argument or variable", one) for one in texts] + [
        (f"the file {name!r}", name + text) for name, text in spec.files.items()
    ]:
        if not is_unicode(text):
            raise SpecError(
                f"{what} has half of a surrogate pair, which is no character",
                fix="replace it; \\ud83d and the like come from text that was cut in two",
            )
    for text in texts:
        if "\0" in text:
            raise SpecError(
                f"an argument or variable has a NUL character: {text[:80]!r}",
                fix="remove it: no program can be given one",
            )


def _check_files(spec: JobSpec) -> None:
    paths = [PurePosixPath(name) for name in spec.files]
    folders = {folder for path in paths for folder in path.parents}
    for name, path in zip(spec.files, paths, strict=True):
        if "\0" in name or is_long(name):
            raise SpecError(
                f"no file can have the name {name[:80]!r}",
                fix=f"use a name of at most {LONGEST_PART_BYTES} bytes, without a NUL character",
            )
        if path in folders and path != PurePosixPath():
            raise SpecError(
                f"{name!r} is a file and the folder of another one", fix="rename one of them"
            )
        if path.is_absolute() or ".." in path.parts or path == PurePosixPath():
            raise SpecError(
                f"the file {name!r} would lie outside of the job's directory",
                fix="use a relative path without ..",
            )
    size = sum(len(text.encode()) for text in spec.files.values())
    if size > FILES_LIMIT_BYTES:
        raise SpecError(
            f"the job's files total {size / 2**20:.1f} MiB; "
            f"the limit is {FILES_LIMIT_BYTES >> 20} MiB",
            fix="put large files on the nodes and name their absolute paths",
        )


def _check_participant(participant: Participant) -> None:
    if participant.nproc < 1:
        raise SpecError(
            f"{participant.nproc} processes requested",
            fix="request at least one, or omit the node",
            node=participant.node,
        )
    gpus = participant.gpus
    if len(set(gpus)) != len(gpus):
        raise SpecError("the same GPU is named twice", fix="name each once", node=participant.node)
    if gpus and len(gpus) != participant.nproc:
        raise SpecError(
            f"{participant.nproc} processes and {len(gpus)} GPUs do not match",
            fix="name one GPU per process",
            node=participant.node,
        )
