"""Panel on a source: the form of a launch on a scheduler's nodes, and that launch."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.console import RenderableType

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.bundles import plain_text
from jupyter_mntrain.show.screen import Screen
from jupyter_mntrain.sources.registry import title_of
from jupyter_mntrain.verbs.launching.launch import LaunchVerb
from jupyter_mntrain.verbs.panel.checks import Findings
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.fields import Read, make_fields, problems, usable
from jupyter_mntrain.verbs.panel.form import Form, check_settings, of_recipe
from jupyter_mntrain.verbs.panel.source.source_fields import source_fields
from jupyter_mntrain.verbs.verb import Context

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress


def source_form(choices: Choices, read: Read, *, is_script: bool) -> Form:
    """Return the form of a launch on nodes that are not granted yet, so none can be checked."""
    given = source_fields(choices)
    number = next(one for one in given if one.option.name == "nodes")
    nodes = 1 if number.problem or not number.text else int(number.text)
    findings = Findings(())
    fields = make_fields(choices, read, nodes=nodes, ranks=0, is_script=is_script)
    wrong = (*problems(fields), *(one.problem for one in given if one.problem is not None))
    workload = read(usable(choices))
    check_settings(workload, 0, choices, findings, wrong)
    asked = f"{formats.plural(nodes, 'node')} of {title_of(choices.on)}"
    return Form(
        rows=(),
        settings=tuple(findings.settings),
        fields=fields,
        source=given,
        **of_recipe(workload),
        blocked=next(filter(None, (findings.first_error, *wrong)), None),
        summary=f"A launch asks for {asked}, and waits for them.",
    )


class LaunchedOnSource(NamedTuple):
    """The job, and notes on its nodes."""

    job: Job
    said: tuple[Problem, ...]


def launched_on(
    context: Context, words: Sequence[str], progress: Progress, sleep: Callable[[float], None]
) -> LaunchedOnSource:
    """Ask the source for nodes, wait for them, and launch there, as the command does.

    Args:
        words: after ``launch``.
        progress: told why it waits.
        sleep: waits between two looks; what it raises ends the waiting, and the nodes are given
            back.

    Raises:
        MntrainError: as for ``launch``; nothing was started then, and nothing is left.
    """
    quiet = dataclasses.replace(context, screen=_LineScreen(progress), sleep=sleep)
    outcome = LaunchVerb().run(quiet, launch_args(context, words))
    said = outcome.data.get("warnings", ()) if isinstance(outcome.data, dict) else ()
    assert outcome.job is not None  # noqa: S101 - a launch that returns has one
    return LaunchedOnSource(outcome.job, msgspec.convert(said, tuple[Problem, ...]))


def launch_args(context: Context, words: Sequence[str]) -> Namespace:
    """Parse the arguments of a launch.

    Args:
        words: after ``launch``.

    Raises:
        SpecError: one cannot be meant.
    """
    verb = LaunchVerb()
    parser = Parser(f"{context.program} launch")
    verb.add_arguments(parser)
    verb.add_chosen_arguments(parser, words)
    own = Namespace(cluster=None, agent=None, allocation=None)
    return parser.parse(words, own)


class _LineScreen(Screen):
    """Shows messages in one line, each replacing the one before."""

    keeps_last = True

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def say(self, renderable: RenderableType) -> None:
        self._progress.report(" ".join(plain_text(renderable).split()), 0, None)

    def show(self, job: Job) -> None:
        raise NotImplementedError  # the panel shows it

    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        raise NotImplementedError  # the panel follows it

    def progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(self._progress)
