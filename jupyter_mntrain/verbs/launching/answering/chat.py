"""``chat``: several turns with a job's newest checkpoint or a model's directory."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.command_line.parser import Parser, bounded_float, bounded_int
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.text.conversation import (
    CHATTER,
    LARGEST_SEED,
    MOST_NEW_TOKENS,
    ChatAnswer,
    Sampling,
)
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.verbs.launching.answering.dialog import Dialog
from jupyter_mntrain.verbs.launching.answering.model_source import (
    add_model_arguments,
    answering_spec,
)
from jupyter_mntrain.verbs.launching.launch import submitter
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Progress
    from jupyter_mntrain.cluster.chat import Chat

USUAL = Sampling()
PROMPT = "> "


class ChatVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        add_model_arguments(parser)
        parser.flag("--completion", help="continue each line as it is, without a chat template")
        parser.option("--system", default="", metavar="TEXT", help="the system message")
        parser.option(
            "--tokens",
            type=bounded_int(1, MOST_NEW_TOKENS),
            default=USUAL.tokens,
            metavar="N",
            help=f"answer with at most N new tokens; default: {USUAL.tokens}",
        )
        parser.option(
            "--temperature",
            type=bounded_float(0, 10),
            default=USUAL.temperature,
            metavar="T",
            help=f"0 always picks the likeliest token; default: {USUAL.temperature}",
        )
        parser.option(
            "--seed",
            type=bounded_int(0, LARGEST_SEED),
            default=USUAL.seed,
            metavar="N",
            help="random seed; default: 0",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.completion and args.system:
            raise SpecError("--completion has no system message", fix="omit --system")
        spec = answering_spec(context, args, CHATTER, "chat")
        cluster = context.cluster(args)
        sampling = Sampling(tokens=args.tokens, temperature=args.temperature, seed=args.seed)
        with context.screen.progress() as progress:
            job = cluster.launch(spec, submitted_by=submitter(context), progress=progress)
        with job.ending_with_driver(), job.chat() as chat:
            with context.screen.progress() as progress:
                model = _ready(chat, progress)
            if not (model.has_template or args.completion):
                cause = "this model has no chat template"
                raise RefusedError(cause, fix="continue plain text instead: add --completion")
            write = _silent if args.json else _write
            dialog = Dialog(
                lambda messages, how: chat.answers(messages, how, is_completion=args.completion),
                _reader(context, is_quiet=args.json),
                write,
                sampling,
                args.system,
                is_completion=args.completion,
            )
            write(f"{_named(args.model, model)}. /help lists commands, /exit ends the chat.\n")
            try:
                dialog.run()
            except KeyboardInterrupt:
                write("\n")
        data = {"job_id": job.id, "step": model.step, "messages": msgspec.to_builtins(dialog.said)}
        return Outcome("", data, job=job)


def _ready(chat: Chat, progress: Progress) -> ChatAnswer:
    progress.report("loading the model", 0, None)
    while (model := chat.ready()) is None:
        pass  # it waits for a moment
    return model


def _named(name: str, model: ChatAnswer) -> str:
    shown = shown_line(name)
    return shown if model.step is None else f"{shown}, step {model.step:,}"


def _reader(context: Context, *, is_quiet: bool) -> Callable[[], str]:
    """Return a function that reads a line: ``input`` at a terminal, or below a notebook's cell."""
    is_magic = context.program.startswith("%")
    asks = is_magic or (sys.stdin is not None and sys.stdin.isatty() and not is_quiet)

    def read() -> str:
        try:
            return input(PROMPT if asks else "")
        except (RuntimeError, OSError):  # a notebook without a page, or no standard input
            raise SpecError(
                "there is no terminal or notebook to type in",
                fix=f'use {context.program} generate JOB "text" --chat',
            ) from None

    return read


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _silent(_: str) -> None:
    """Print nothing, for ``--json``: stdout is for data only."""
