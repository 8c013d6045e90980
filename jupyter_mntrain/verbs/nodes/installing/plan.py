"""Plan: which commands make a machine a node of this cluster, from what was found there. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.verbs.nodes.installing.facts import (
    Facts,
    FoundEnvironment,
    FoundMembership,
    Wanted,
)

JOIN_S = tunables.seconds("install.join_timeout_s")
STEP_S = 300.0
"""Timeout for creating an environment, copying the package or starting the service."""
TOKEN_LIFE_S = 2 * 3600.0
"""Validity of the token that an installation uses: its packages may take long."""
PACKAGES_S = tunables.seconds("install.packages_timeout_s")

Input = Literal["nothing", "wheel", "token"]


class Step(Record, frozen=True):
    """One command on the machine.

    Args:
        title: what it does, for progress.
        command: as the machine's shell takes it.
        stdin: what it reads. A token goes no other way: every user there can read arguments.
    """

    title: str
    command: str
    stdin: Input = "nothing"
    timeout_s: float = STEP_S


class NodeChoices(Record, frozen=True):
    """What the user chose for a machine.

    Args:
        name: of the node; default: the machine's.
        port: of its agent; default: the usual one.
        without_systemd: start the agent on its own.
    """

    name: str | None = None
    port: int | None = None
    without_systemd: bool = False


def look_command(python: tuple[int, int], environment: str | None, given: str | None) -> str:
    """Return the command that finds a Python there and runs the look from standard input.

    No single quotes of ours inside: every login shell takes what is between two of them as it is.
    """
    wanted = f"python{python[0]}.{python[1]}"
    dirs = ("$HOME/.local/bin", "/usr/local/bin", "/opt/homebrew/bin", "/usr/bin")
    names = [wanted, "python3", *(f"{folder}/{wanted}" for folder in dirs)]
    tried = " ".join(f'"{name}"' for name in names)
    words = " ".join(f'"{_escaped(word)}"' for word in (environment or "-", given or "-"))
    test = f"import sys; sys.exit(7 if sys.version_info[:2] == {python} else 8)"
    script = (
        f'for p in {tried}; do "$p" -c "{test}" </dev/null >/dev/null 2>&1; '
        f'if [ $? = 7 ]; then exec "$p" - {words}; fi; done; '
        f"if command -v python3 >/dev/null 2>&1; then exec python3 - {words}; fi; exit 127"
    )
    return _in_sh(script)


def _escaped(word: str) -> str:
    """Escape a text within double quotes of ``sh``."""
    return "".join(f"\\{one}" if one in '\\"$`' else one for one in word)


def right_packages(found: FoundEnvironment, wanted: Wanted) -> bool:
    """Whether an environment has the driver's versions, whatever their builds."""
    return all(
        found.packages.get(name, "").partition("+")[0] == version
        for name, version in wanted.packages.items()
    )


def right_package(found: FoundEnvironment, wanted: Wanted) -> bool:
    """Whether it has this very package: a wheel of the same version may differ in content."""
    own = next(iter(wanted.packages.items()))
    if found.packages.get(own[0]) != own[1]:
        return False
    return found.is_editable or found.digest is None or found.digest == wanted.digest


def changes_packages(facts: Facts, wanted: Wanted) -> bool:
    """Whether packages have to be installed."""
    found = facts.environment
    return found is None or not (right_packages(found, wanted) and right_package(found, wanted))


def package_steps(facts: Facts, wanted: Wanted, wheel: str) -> list[Step]:
    """Return the steps that set up an environment with the driver's versions; empty if it exists.

    Args:
        wheel: file name of the driver's own.
    """
    if not changes_packages(facts, wanted):
        return []
    steps = []
    if not wanted.is_given and (facts.environment is None or not facts.environment.pip):
        # An incomplete environment: we made the directory, so nobody's work is in it.
        clear = ("--clear",) if facts.exists else ()
        words = (facts.python, "-m", "venv", *clear, facts.where)
        steps.append(Step(title="creating an environment", command=shlex.join(words)))
    folder = PurePosixPath(facts.where).parent / "packages"
    path = str(folder / wheel)
    copy = f"mkdir -p {shlex.quote(str(folder))} && cat > {shlex.quote(path)}"
    steps.append(Step(title="copying the package", command=_in_sh(copy), stdin="wheel"))
    pip = (facts.used, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    itself = shlex.join([*pip, "--no-index", "--no-deps", "--force-reinstall", path])
    versions = [f"{name}=={version}" for name, version in wanted.packages.items()]
    # Without an index first: a machine without internet that has everything needs none.
    others = f"{shlex.join([*pip, '--no-index', *versions])} 2>/dev/null"
    online = shlex.join([*pip, *versions])
    installs = _in_sh(f"{itself} && {{ {others} || {online}; }}")
    steps.append(Step(title="installing packages", command=installs, timeout_s=PACKAGES_S))
    return steps


def agent_step(facts: Facts, wanted: Wanted, choices: NodeChoices) -> Step:
    """Return the step that makes it join if necessary, and its agent outlive the login."""
    agent = [facts.used, "-P", "-m", "jupyter_mntrain.agent"]
    alone = ["--without-systemd"] if choices.without_systemd else []
    mine = member_of(facts, wanted)
    if mine is not None:
        restart = ["--restart"] if changes_packages(facts, wanted) else []
        words = [*agent, "install-service", "--json", *alone, *restart, "--state-dir", mine.state]
        return Step(title="starting the agent", command=shlex.join(words))
    name = ["--name", choices.name] if choices.name else []
    chosen = choices.port or facts.free_port
    port = ["--port", str(chosen)] if chosen != DEFAULT_PORT else []
    patience = ["--timeout", f"{JOIN_S:g}s"]
    words = [*agent, "join", "--service", "--json", *alone, *name, *port, *patience]
    return Step(title="joining", command=shlex.join(words), stdin="token")


def member_of(facts: Facts, wanted: Wanted) -> FoundMembership | None:
    """Return the machine's node of this cluster, if there is one."""
    for one in facts.memberships:
        if wanted.authority is not None and one.authority_fingerprint == wanted.authority:
            return one
    return None


def all_steps(facts: Facts, wanted: Wanted, choices: NodeChoices, wheel: str) -> Sequence[Step]:
    """Return every command that changes the machine, in order."""
    return (*package_steps(facts, wanted, wheel), agent_step(facts, wanted, choices))


def _in_sh(script: str) -> str:
    """Return a command line for ``sh``, whatever the login shell is."""
    return f"exec sh -c {shlex.quote(script)}"
