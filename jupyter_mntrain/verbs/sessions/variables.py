"""``session pull`` and ``session push``: variables of a notebook, to and from the ranks."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import numbered, size_text
from jupyter_mntrain.model.records.session import Value
from jupyter_mntrain.verbs.sessions.cell import (
    find_session,
    rank_option,
    session_option,
)
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class PullVariable(Verb):
    name = "pull"
    help = "fetch a variable of the ranks into this notebook's of the same name"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("variable_name", metavar="NAME", help="of the variable")
        rank_option(parser, "of several, a list of their values is fetched; default: the first")
        session_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        variables = _variables(context)
        job = find_session(context, args, args.session)
        session = job.session()
        values = session.pull(args.variable_name, args.ranks or [session.ranks[0]])
        found = [_unpacked(one) for one in values.values()]
        variables[args.variable_name] = found[0] if len(found) == 1 else found
        return _outcome(job.id, args.variable_name, values, "from")


class PushVariable(Verb):
    name = "push"
    help = "set a variable on the ranks to this notebook's value"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("variable_name", metavar="NAME", help="of the variable")
        rank_option(parser, "that get it; default: all")
        session_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        variables, name = _variables(context), args.variable_name
        if name not in variables:
            raise SpecError(f"this notebook has no variable {name}", fix="set it in a cell first")
        job = find_session(context, args, args.session)
        session = job.session()
        value = _packed(variables[name], name)
        ranks = tuple(session.ranks) if args.ranks is None else args.ranks
        context.screen.say(Text(f"sending {_described(name, value)}", "dim"))
        session.push(name, value, ranks)
        return _outcome(job.id, name, dict.fromkeys(ranks, value), "to")


def _variables(context: Context) -> dict[str, Any]:
    if context.screen.variables is None:
        raise SpecError(
            "only a notebook has variables",
            fix=f"print it on the ranks: {context.program} cell < FILE",
        )
    return context.screen.variables


def _packed(value: object, name: str) -> Value:
    try:
        from jupyter_mntrain.session.values import packed
    except ImportError as error:
        raise _lacks(error) from None
    return packed(value, name)


def _unpacked(value: Value) -> Any:
    try:
        from jupyter_mntrain.session.values import unpacked
    except ImportError as error:
        raise _lacks(error) from None
    return unpacked(value)


def _lacks(error: ImportError) -> SpecError:
    return SpecError(
        f"this kernel lacks {error.name}, with which values are read",
        fix=f"install it here: pip install {error.name}",
    )


def _described(name: str, value: Value) -> str:
    shape = f" of {' × '.join(map(str, value.shape))}" if value.shape else ""
    kind = f" ({value.kind} {value.dtype}{shape})" if value.dtype else ""
    return f"{name}{kind}, {size_text(len(value.data))}"


def _outcome(job_id: str, name: str, values: dict[int, Value], way: str) -> Outcome:
    ranks = [*values]
    size = sum(len(one.data) for one in values.values())
    text = f"{_described(name, values[ranks[0]])}, {way} {numbered('rank', ranks)}"
    data = {"job_id": job_id, "variable": name, "size_bytes": size, "ranks": ranks}
    return Outcome(Text(text), data)
