"""Variables: ``--variable NAME`` stores the job in a notebook variable."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.verb import Context


def variable_option(parser: Parser) -> None:
    parser.option(
        "--variable",
        metavar="NAME",
        help="store the job in this variable (notebooks only)",
    )
    parser.renamed("--out", "-o", to="--variable")


def refuse_variable(context: Context, args: Namespace) -> None:
    """Refuse an invalid variable name before anything is started.

    Raises:
        SpecError: it is not a variable name, or this is not a notebook.
    """
    if not args.variable:
        return
    if not context.screen.has_variables:
        raise SpecError(
            f"--variable {args.variable}: only a notebook has variables", fix="leave it out"
        )
    if not args.variable.isidentifier():
        raise SpecError(
            f"--variable {args.variable}: not a variable name", fix="use letters, digits and _"
        )
