"""Panel choices, and the equivalent ``launch`` command. Pure."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from jupyter_mntrain.launch.driver_values import with_values
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.text.secrets import is_secret
from jupyter_mntrain.recipe.parse import is_duration

_IDS = re.compile(r"(?:gpus?)?\s*(\d{1,3}(?:\s*,\s*\d{1,3})*)", re.IGNORECASE)


class NodeChoice(Record, frozen=True):
    """The choices for one node.

    Args:
        is_used: ``None`` = not chosen: :attr:`Choices.others_take_part` applies.
        gpus: ``""`` = all idle ones, or one process; ``2`` = any two; ``gpu1`` or ``0,2`` = these.
        interface: its name; ``None`` = chosen at launch.
    """

    is_used: bool | None = None
    gpus: str = ""
    interface: str | None = None


Restart = Literal["never", "failed", "failed or stalled"]
"""When to restart a job. A stalled job has not failed until it is ended."""


OF_RECIPE: Mapping[str, str] = {
    "steps": "train.steps",
    "batch": "train.batch_size",
    "data": "data.source",
}
"""Fields of :class:`Choices` that change a recipe, and what each changes."""

OF_JOB: dict[str, str] = {
    "name": "--name",
    "priority": "--priority",
    "restarts": "--restarts",
    "min_nodes": "--min-nodes",
}
"""Fields of :class:`Choices` that are options of a launch."""

OF_PLACE: dict[str, str] = {
    "project": "--project",
    "workdir": "--workdir",
    "python": "--python",
}
"""Fields of :class:`Choices` that say in which files and interpreter a job runs."""

RESTARTS = 3
"""Default number of restarts."""


class Choices(Record, frozen=True):
    """All choices for one recipe. The defaults can be launched.

    Args:
        nodes: by name.
        others_take_part: whether nodes that are not in ``nodes`` participate.
        head: ``None`` = the first by name.
        port: ``""`` = a free one.
        schedule: ``None`` = as the recipe says.
        microbatches: ``None`` = as the recipe says.
        changes: ``section.field=value``, separated by spaces, quoted as in a shell.
        environment: ``NAME=VALUE`` or ``NAME``, separated in the same way.
        steps, batch, data: as typed; ``""`` = as the recipe says.
        name: of the job; ``""`` = that of the recipe or script.
        priority: as typed; ``""`` = 0.
        restart: when to restart it.
        restarts: how often, as typed; ``""`` = :data:`RESTARTS` times.
        min_nodes: as typed; ``""`` = all.
        waits: whether it is queued until everything it needs is free.
        project, workdir, python: as typed; ``""`` = as without the option.
        mixed_versions: start even if the nodes' versions differ.
        skips_doctor: start whatever the doctor finds.
        on: source of nodes; ``""`` = the cluster's own nodes.
        on_values: of that source's options, by name; a line each where several can be given.
    """

    nodes: dict[str, NodeChoice] = {}
    others_take_part: bool = True
    head: str | None = None
    port: str = ""
    schedule: str | None = None
    microbatches: int | None = None
    changes: str = ""
    environment: str = ""
    steps: str = ""
    batch: str = ""
    data: str = ""
    name: str = ""
    priority: str = ""
    restarts: str = ""
    min_nodes: str = ""
    project: str = ""
    workdir: str = ""
    python: str = ""
    restart: Restart = "never"
    waits: bool = False
    mixed_versions: bool = False
    skips_doctor: bool = False
    on: str = ""
    on_values: dict[str, str] = {}

    def node(self, name: str) -> NodeChoice:
        return self.nodes.get(name, NodeChoice())

    def uses(self, name: str) -> bool:
        chosen = self.node(name).is_used
        return self.others_take_part if chosen is None else chosen

    def with_node(self, name: str, **fields: Any) -> Choices:
        """Return a copy with other choices for one node."""
        choice = msgspec.structs.replace(self.node(name), **fields)
        return msgspec.structs.replace(self, nodes=self.nodes | {name: choice})


def member_text(name: str, choice: NodeChoice) -> str:
    """Return ``HOST:N[:IFACE]`` of a row.

    Raises:
        SpecError: the text in the GPU field is neither a number nor GPU ids.
    """
    count = _count(name, choice.gpus.strip())
    if choice.interface is None:
        return f"{name}:{count}" if count else name
    return f"{name}:{count}:{choice.interface}"


def port_number(choices: Choices) -> int | None:
    """Return the rendezvous port; ``None`` for a free one.

    Raises:
        SpecError: it is not a port number.
    """
    text = choices.port.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= LAST_PORT):
        raise SpecError(
            f"{text!r} is not a port from 1 to {LAST_PORT}",
            fix="leave it empty for a free one",
        )
    return int(text)


def overrides(choices: Choices) -> list[str]:
    """Return the changes to the recipe, as arguments of ``--set``.

    Raises:
        SpecError: a quote is not closed.
    """
    chosen = {
        "pipeline.schedule": choices.schedule and f'"{choices.schedule}"',
        "pipeline.microbatches": choices.microbatches,
    }
    fields = [f"{field}={value}" for field, value in chosen.items() if value is not None]
    changes, shown = _split(choices.changes), settings(choices)
    if any(map(is_duration, shown)):  # a command that gives both steps and epochs is refused
        changes = [one for one in changes if not is_duration(one)]
    # The last one wins: what a field shows is what runs.
    return [*fields, *changes, *shown]


def variables(choices: Choices) -> list[str]:
    """Return the ranks' environment variables, as arguments of ``--env``.

    Raises:
        SpecError: a quote is not closed, or a word is neither ``NAME=VALUE`` nor ``NAME``.
    """
    words = _split(choices.environment)
    for word in words:
        name = word.partition("=")[0]
        if not name or any(one.isspace() for one in name):
            raise SpecError(
                f"{name!r} is not the name of a variable",
                fix="use the form NCCL_DEBUG=INFO, or a name alone to take its value from here",
            )
    return words


def check_variables(choices: Choices, environment: Mapping[str, str]) -> None:
    """Check the variables, including those whose values are taken from ``environment``.

    Raises:
        SpecError: as for :func:`variables`, or one is not set there.
    """
    taken = tuple(word for word in variables(choices) if "=" not in word)
    with_values(JobSpec(entry=(), participants=(), from_environment=taken), environment)


def without_secrets(choices: Choices) -> Choices:
    """Return choices to store and show: of secrets, only the names of their variables are kept."""
    try:
        words = variables(choices)
    except SpecError:
        return msgspec.structs.replace(choices, environment="")
    kept = []
    for word in words:
        name, _, value = word.partition("=")
        kept.append(name if is_secret(name, value) else word)
    return msgspec.structs.replace(choices, environment=shlex.join(kept))


def launch_words(
    choices: Choices, members: Sequence[str], *, head: str | None, target: str | None
) -> list[str]:
    """Return the words after ``%mntrain launch``.

    Args:
        members: the participants, as :func:`member_text` returns them.
        head: the value of ``--head``; ``None`` if the first member is the head.
        target: a file or a job; ``None`` if the recipe is in the cell.
    """
    words = [target] if target else []
    for member in members:
        words += ["--member", member]
    if head is not None:
        words += ["--head", head]
    if choices.port.strip():
        words += ["--port", choices.port.strip()]
    words += [*on_words(choices), *options(choices)]
    if choices.restart == "failed or stalled":
        words += ["--on-stall", "abort"]
    if choices.mixed_versions:
        words.append("--mixed-versions")
    for variable in variables(choices):
        words += ["--env", variable]
    for change in overrides(choices):
        words += ["--set", change]
    return words


def start_words(choices: Choices) -> list[str]:
    """Return the launch options that say how to start, not what."""
    waits = choices.waits and not choices.on  # its nodes are those that it waits for
    chosen = {"--queue": waits, "--skip-doctor": choices.skips_doctor}
    return [option for option, is_chosen in chosen.items() if is_chosen]


def on_words(choices: Choices) -> list[str]:
    """Return the options that request nodes from a source; empty for the cluster's own nodes."""
    given = [(f"--{name}", text.splitlines()) for name, text in choices.on_values.items()]
    words = [word for name, lines in given for line in lines for word in _option(name, line)]
    return ["--on", choices.on, *words] if choices.on else []


def settings(choices: Choices) -> list[str]:
    """Return the chosen fields of the recipe, as arguments of ``--set``."""
    given = {setting: getattr(choices, name).strip() for name, setting in OF_RECIPE.items()}
    return [setting_words(name, text) for name, text in given.items() if text]


def options(choices: Choices) -> list[str]:
    """Return the chosen launch options and their values."""
    words = []
    for name, option in (OF_JOB | OF_PLACE).items():
        text = getattr(choices, name).strip()
        if name == "restarts":
            text = "" if choices.restart == "never" else text or str(RESTARTS)
        if text:
            words += _option(option, text)
    return words


def _option(name: str, value: str) -> list[str]:
    """Join an option and its value, as a value that begins with a dash would be an option."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def with_field(choices: Choices, name: str, text: str) -> Choices:
    """Return the choices with a new text in a field; a number of restarts enables restarting."""
    changed = msgspec.structs.replace(choices, **{name: text})
    if name == "restarts" and text.strip() == "0":
        return with_restart(changed, "never")
    if name == "restarts" and text.strip().isdecimal() and choices.restart == "never":
        return msgspec.structs.replace(changed, restart="failed")
    return changed


def with_restart(choices: Choices, restart: Restart) -> Choices:
    """Return the choices with a new restart policy; "never" clears the number of restarts."""
    restarts = "" if restart == "never" else choices.restarts
    return msgspec.structs.replace(choices, restart=restart, restarts=restarts)


def without(choices: Choices, *names: str) -> Choices:
    """Return the choices with these fields empty."""
    return msgspec.structs.replace(choices, **dict.fromkeys(names, ""))


def setting_words(name: str, text: str) -> str:
    """Return ``section.field=value``; a text that TOML would read differently is quoted."""
    if name != "data.source":
        return f"{name}={text}"
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return f"{name}={text}"
    return f"{name}={json.dumps(text, ensure_ascii=False)}"


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SpecError(f"{text!r}: {str(error).lower()}", fix="close the quote") from None


def _count(name: str, text: str) -> str:
    if not text or (text.isascii() and text.isdigit()):
        return text
    ids = _IDS.fullmatch(text)
    if ids is None:
        raise SpecError(
            f"{text!r} is neither a number nor GPU ids",
            fix="use 2 for any two, gpu1 for that one, or 0,2 for those two",
            node=name,
        )
    return "gpu" + re.sub(r"\s", "", ids[1])
