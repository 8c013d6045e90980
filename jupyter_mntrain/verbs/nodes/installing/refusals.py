"""Refusals: why a machine cannot become a node, or not now, based on its facts. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import duration_text, size_text
from jupyter_mntrain.trust.joining.join_server import SET_CLOCK, TOLERANCE_S
from jupyter_mntrain.verbs.nodes.installing.facts import Facts, Wanted
from jupyter_mntrain.verbs.nodes.installing.plan import changes_packages, member_of, right_packages

ENVIRONMENT_BYTES = 8 * 2**30
"""Free space that an environment with torch needs: CUDA's libraries have 5 GB."""
PACKAGE_BYTES = 50 * 2**20
"""Free space that the package itself needs, where everything else is there."""


def refuse(facts: Facts, wanted: Wanted, host: str, *, now_s: float) -> None:
    """Refuse before anything is changed.

    Args:
        now_s: by this machine's clock, at the middle of the look.

    Raises:
        NodeError: naming the host, the cause and the fix.
    """
    _refuse_system(facts, host)
    _refuse_clock(facts, host, now_s)
    _refuse_other_cluster(facts, wanted, host)
    _refuse_python(facts, wanted, host)
    if changes_packages(facts, wanted):
        refuse_jobs(facts, host)
        _refuse_space(facts, wanted, host)


def _refuse_system(facts: Facts, host: str) -> None:
    if facts.system != "Linux":
        raise NodeError(
            f"a node needs Linux, and it runs {facts.system}",
            kind=Kind.REFUSED,
            fix="choose another machine; on Windows, one that ssh reaches within WSL2",
            node=host,
        )


def _refuse_clock(facts: Facts, host: str, now_s: float) -> None:
    ahead_s = facts.time_s - now_s
    if abs(ahead_s) > TOLERANCE_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        cause = f"its clock is {duration_text(abs(ahead_s))} {side} this machine's"
        raise NodeError(cause, kind=Kind.CLOCK_OFF, fix=SET_CLOCK, node=host)


def _refuse_other_cluster(facts: Facts, wanted: Wanted, host: str) -> None:
    if not facts.memberships or member_of(facts, wanted) is not None:
        return
    one = facts.memberships[0]
    same_name = one.cluster == wanted.cluster
    raise NodeError(
        f"it is node {one.name} of "
        + ("another cluster of the same name" if same_name else f"cluster {one.cluster!r}"),
        kind=Kind.OTHER_AUTHORITY if same_name else Kind.WRONG_CLUSTER,
        fix=f"to change clusters, run there first: {one.python} -m jupyter_mntrain.cli agent leave",
        node=host,
    )


def _refuse_python(facts: Facts, wanted: Wanted, host: str) -> None:
    version = f"{wanted.python[0]}.{wanted.python[1]}"
    get_one = (
        f"install Python {version} there (apt-get install python{version} python{version}-venv), "
        "or give the interpreter of an environment that has it: --python FILE"
    )
    found = facts.environment
    if wanted.is_given and found is None:
        cause = f"{facts.used} is not a Python that runs there"
        raise NodeError(cause, kind=Kind.NO_PYTHON, fix="check --python", node=host)
    if found is not None:
        _refuse_environment(facts, wanted, host, get_one)
        return
    if facts.version[:2] != wanted.python:
        own = ".".join(map(str, facts.version))
        cause = f"it has Python {own}, and all nodes need this machine's {version}"
        raise NodeError(cause, kind=Kind.NO_PYTHON, fix=get_one, node=host)
    if not facts.venv:
        raise NodeError(
            f"{facts.python} cannot make environments: it lacks venv",
            kind=Kind.NO_VENV,
            fix=f"install it there: sudo apt-get install python{version}-venv",
            node=host,
        )


def _refuse_environment(facts: Facts, wanted: Wanted, host: str, get_one: str) -> None:
    found = facts.environment
    if found is None:
        return
    if found.version[:2] != wanted.python:
        own = ".".join(map(str, found.version))
        cause = f"{facts.used} is Python {own}, and all nodes need this machine's"
        raise NodeError(cause, kind=Kind.NO_PYTHON, fix=get_one, node=host)
    name, version = next(iter(wanted.packages.items()))
    if found.is_editable and found.packages.get(name) != version:
        cause = f"{facts.used} uses a working copy of {name} {found.packages.get(name)}"
        fix = f"update that copy to {version}, or choose another environment: --python FILE"
        raise NodeError(cause, kind=Kind.OTHER_PACKAGES, fix=fix, node=host)
    if changes_packages(facts, wanted) and wanted.is_given and not found.pip:
        needs = " ".join(f"{name}=={version}" for name, version in wanted.packages.items())
        cause = f"{facts.used} has no pip, and lacks packages"
        fix = f"install these there with its own tools: {needs}"
        raise NodeError(cause, kind=Kind.OTHER_PACKAGES, fix=fix, node=host)


def _refuse_space(facts: Facts, wanted: Wanted, host: str) -> None:
    has_most = facts.environment is not None and right_packages(facts.environment, wanted)
    has_torch = facts.environment is not None and "torch" in facts.environment.packages
    needed = PACKAGE_BYTES if has_most or has_torch else ENVIRONMENT_BYTES
    if facts.free_bytes < needed:
        raise NodeError(
            f"{size_text(facts.free_bytes)} are free at {facts.where}, and {size_text(needed)} are "
            "needed",
            kind=Kind.DISK_FULL,
            fix="free some there, or choose another place: --directory DIRECTORY",
            node=host,
        )


def refuse_jobs(facts: Facts, host: str) -> None:
    """Refuse to change packages while jobs use them.

    Raises:
        NodeError: jobs run there.
    """
    if facts.jobs:
        raise NodeError(
            f"its packages would change while it runs {', '.join(facts.jobs)}",
            kind=Kind.JOBS_RUNNING,
            fix="wait until they have ended with mntrain upgrade --wait, or stop them first",
            node=host,
        )


class StepMeaning(NamedTuple):
    """What a message of pip or of a shell means."""

    pattern: str
    kind: Kind
    fix: str


_MEANINGS = (
    StepMeaning(
        r"No space left on device|Disk quota exceeded", Kind.DISK_FULL, fix="free some space there"
    ),
    StepMeaning(
        r"ensurepip is not available|No module named venv",
        Kind.NO_VENV,
        fix="install it there: sudo apt-get install python3-venv",
    ),
    StepMeaning(
        r"Could not find a version|No matching distribution|ConnectionError|ReadTimeoutError",
        Kind.NO_DOWNLOAD,
        fix="give it access to a package index, or name an environment that has all packages: "
        "--python FILE",
    ),
    StepMeaning(
        r"Permission denied|Read-only file system",
        Kind.NO_PERMISSION,
        fix="give the user permission to write there",
    ),
)


def step_failed(title: str, messages: str, host: str) -> NodeError:
    """Return the error for a command that failed there."""
    lines = [line for line in messages.strip().splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "")
    for one in _MEANINGS:
        if re.search(one.pattern, messages):
            cause = f"{title} failed: {last.strip()}"
            return NodeError(cause, kind=one.kind, fix=one.fix, node=host)
    return NodeError(
        f"{title} failed: {last.strip() or 'no message'}",
        kind=Kind.NOT_INSTALLED,
        fix="see the command with --dry-run, and run it there by hand",
        node=host,
    )
