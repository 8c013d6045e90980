"""Own machine: makes the server's machine a node or a driver, and its agent a service.

By the commands that a person would type here, as the server's own user. No other machine can be
named: what a page may change is the machine that serves it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_mntrain.cluster.discovery.discovery import LOOPBACK, browsing_addresses
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import MntrainError, NodeError, SpecError, error_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.server.messages import ChangedMachine, MakeNode, PackedWheel
from jupyter_mntrain.trust.joining.token import read_token
from jupyter_mntrain.verbs.nodes.installing.admission import admit
from jupyter_mntrain.verbs.nodes.installing.look import free_port
from jupyter_mntrain.verbs.nodes.installing.plan import JOIN_S, STEP_S
from jupyter_mntrain.verbs.nodes.installing.wheel import pack

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


def become_node(token: str, choice: MakeNode, cluster: Cluster | None = None) -> ChangedMachine:
    """Join with a node's token, then install and start the service.

    Args:
        cluster: that the machine joins, if it is the server's own: it admits the machine.

    Raises:
        MntrainError: what the command said.
    """
    options = ["--service", f"--timeout={JOIN_S:g}s"]
    # One word each: a value that begins with a dash is no option.
    options += [f"--listen={address}" for address in choice.listen]
    if choice.name is not None:
        options.append(f"--name={choice.name}")
    port = choice.port or free_port()  # type: ignore[no-untyped-call]  # for any Python
    if port != DEFAULT_PORT:
        options.append(f"--port={port}")
    if choice.without_systemd:
        options.append("--without-systemd")
    with ThreadPoolExecutor(1) as pool:
        words = ("agent", "join", *options)
        running = pool.submit(_run, *words, token=token, timeout_s=JOIN_S + STEP_S)
        if cluster is not None:
            outside = [one for one in browsing_addresses() if one != LOOPBACK]
            host = (*choice.listen, *outside, LOOPBACK)[0]
            admit(running, cluster, f"{host}:{port}")
        answer = running.result()
    return ChangedMachine(
        role="node",
        name=answer["node"],
        cluster=answer["cluster"],
        said=tuple(answer.get("service", ())),
    )


def join(token: str) -> ChangedMachine:
    """Join the cluster of a pasted token, as the node or driver that it is for.

    Raises:
        MntrainError: what the command said, or it is no token.
    """
    token = token.strip()
    if "\n" in token:
        raise SpecError(
            "a token has one line", fix="paste only the line that mntrain invite printed"
        )
    if read_token(token).role == "node":
        return become_node(token, MakeNode())
    answer = _run("driver", "join", token=token, timeout_s=JOIN_S)
    return ChangedMachine(role=answer["role"], name=answer["driver"], cluster=answer["cluster"])


def install_service() -> ChangedMachine:
    """Install and start the service of this machine's node.

    Raises:
        MntrainError: it is none yet, or what the command said.
    """
    answer = _run("agent", "install-service", timeout_s=STEP_S)
    return ChangedMachine(role="node", said=tuple(str(answer["done"]).split("; ")))


def packed_wheel() -> PackedWheel:
    """Pack the running package for kernels of other environments."""
    return PackedWheel(path=str(pack(kept_folder("cache") / "wheel").path))


def _run(*words: str, token: str = "", timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "jupyter_mntrain.cli", *words, "--json"]
    try:
        done = subprocess.run(
            command,
            input=f"{token}\n",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NodeError(
            f"mntrain {' '.join(words)} did not end within {timeout_s:g} s",
            kind=Kind.NO_ANSWER,
            fix="check that the inviting notebook or JupyterLab is running, then try again",
        ) from None
    if done.returncode:
        raise _error(done.stderr)
    return dict(json.loads(done.stdout[done.stdout.index("{") :]))


def _error(messages: str) -> MntrainError:
    try:
        return error_of(msgspec.json.decode(messages[messages.index("{") :], type=Problem))
    except (ValueError, msgspec.DecodeError):
        last = (messages.strip().splitlines() or ["no message"])[-1]
        return MntrainError(last, kind=Kind.NOT_INSTALLED, fix="see the log of the Jupyter server")
