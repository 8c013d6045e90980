"""Work: installs on several machines at once, with progress for each; none waits for another."""

from __future__ import annotations

import queue
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.trust.certificates import fingerprint
from jupyter_mntrain.verbs.nodes.installing.facts import Wanted, driver_packages, driver_python
from jupyter_mntrain.verbs.nodes.installing.host import LOOK, Host, InstalledHost
from jupyter_mntrain.verbs.nodes.installing.host_book import HostBook
from jupyter_mntrain.verbs.nodes.installing.plan import NodeChoices, Step
from jupyter_mntrain.verbs.nodes.installing.ssh import Ssh, shown_words
from jupyter_mntrain.verbs.nodes.installing.target import SshTarget
from jupyter_mntrain.verbs.nodes.installing.wheel import Wheel, pack
from jupyter_mntrain.verbs.verb import Context, Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

MOST_AT_ONCE = 16
"""Hosts that are installed at the same time."""

Do = Callable[[Host], InstalledHost]


def own_wheel() -> Wheel:
    """Return the driver's own wheel, where a printed command can still find it later."""
    return pack(kept_folder("cache") / "packages")


def wanted_of(cluster: Cluster, wheel: Wheel) -> Wanted:
    """Return what nodes of a cluster should have."""
    identity = cluster.membership.identity
    return Wanted(
        python=driver_python(),
        packages=driver_packages(),
        digest=wheel.digest,
        cluster=cluster.name,
        authority=fingerprint(identity.credentials.authority) if identity else None,
    )


def work(
    context: Context,
    args: Namespace,
    targets: Sequence[SshTarget],
    wanted: Wanted,
    choices: NodeChoices,
    do: Do,
) -> Outcome:
    """Do something on every machine, and report the result of each."""
    said: queue.Queue[str] = queue.Queue()

    def one(target: SshTarget) -> InstalledHost:
        host = Host(
            Ssh(target),
            wanted,
            choices,
            environment=getattr(args, "directory", None),
            python=getattr(args, "python", None),
            tell=lambda what: said.put(f"{target}: {what}…"),
        )
        try:
            return do(host)
        except MntrainError as error:
            problem = error.problem
            if problem.node is None:
                problem = msgspec.structs.replace(problem, node=str(target))
            return InstalledHost(host=str(target), problem=problem)

    with ThreadPoolExecutor(MOST_AT_ONCE, "mntrain install") as pool:
        futures = [pool.submit(one, target) for target in targets]
        for future in futures:
            future.add_done_callback(lambda _: said.put(""))
        left = len(futures)
        while left:
            line = said.get()
            left -= not line
            if line and not args.dry_run:
                context.screen.say(Text(line, style="dim"))
    results = [future.result() for future in futures]
    if not args.dry_run:
        _remember(wanted.cluster, dict(zip(targets, results, strict=True)))
    data = {"hosts": msgspec.to_builtins(results)}
    is_bad = any(one.problem for one in results)
    rows: list[RenderableType] = [row for one in results for row in _rows(one)]
    return Outcome(Group(*rows), data, exit_code=NodeError.exit_code if is_bad else 0)


def _remember(cluster: str, results: Mapping[SshTarget, InstalledHost]) -> None:
    """Remember which machines are nodes, for the next upgrade."""
    made = [(one.node, target) for target, one in results.items() if one.node and not one.problem]
    gone = [
        target
        for target, one in results.items()
        if one.problem is not None and one.problem.kind is Kind.NOT_JOINED
    ]
    HostBook().change(cluster, made, gone)


def dry_run(host: Host, steps: Sequence[Step], wheel: Wheel) -> InstalledHost:
    """Return the command lines that would run here, quoted for a shell."""
    files = {"nothing": "", "wheel": f" < {shown_words([str(wheel.path)])}", "token": ""}
    lines = [f"{shown_words(host.ssh.words(host.look_command))} < {shown_words([str(LOOK)])}"]
    for step in steps:
        if step.stdin == "token":
            lines.append("# the next one reads a token from standard input, as of: mntrain invite")
        lines.append(f"{shown_words(host.ssh.words(step.command))}{files[step.stdin]}")
    return InstalledHost(host=host.name, said=tuple(lines))


def _rows(one: InstalledHost) -> list[RenderableType]:
    if one.problem is not None:
        return [problem_text(one.problem)]
    if not one.node:
        return [Text(f"{one.host}:", style="bold"), *map(Text, one.said)]
    done = ", ".join(one.changed) or "everything was up to date"
    head = Text.assemble(
        ("✓ ", "green"), one.host, ": node ", (one.node, "bold"), f" is up: {done}"
    )
    return [head, *(Text(f"    {shown_line(line)}", style="dim") for line in one.said)]


def unique(targets: Sequence[SshTarget]) -> list[SshTarget]:
    """Return each machine once: two tasks on one would be in each other's way."""
    return list(dict.fromkeys(targets))
