"""``python -m jupyter_mntrain.train RECIPE.toml [--set section.field=value ...]``."""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import traceback
from typing import NoReturn

# Before anything imports transformers: a training run never asks the hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from jupyter_mntrain.model.environment import FIRST_STEP_VARIABLE, WHOLE_WORLD_SIZE_VARIABLE
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.lazy import heavy_imports
from jupyter_mntrain.recipe.changes.fewer_ranks import on_fewer_ranks
from jupyter_mntrain.recipe.devices import needs_torchao
from jupyter_mntrain.recipe.parse import check, load_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.problem_file import hand_over
from jupyter_mntrain.train.printing import lose_lines_of_a_full_disk

with heavy_imports():
    from torch.distributed.elastic.multiprocessing.errors import record

INTERRUPTED = 128 + signal.SIGINT
"""The exit code that shells give a program ended by Ctrl-C."""


def main(argv: list[str] | None = None) -> int:
    """Train, and return the exit code: 0 after the last step, 2 for a bad recipe, else 1."""
    # kill -USR1 dumps every thread's stack, without a debugger's privileges.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        _run(argv)
    except MntrainError as error:
        hand_over(error.problem)
        # One line per node, for people who read the log.
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"mntrain: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001  # what the interpreter would do, but see _leave
        traceback.print_exc()
        return 1
    return 0


@record
def _run(argv: list[str] | None) -> None:
    arguments = _parser().parse_args(argv)
    chosen = dict(one.partition("=")[::2] for one in arguments.auto)
    recipe = _for_these_ranks(load_recipe(arguments.recipe, arguments.set))
    if not needs_torchao(recipe):
        # transformers and peft import it wherever it is installed: 0.5 of the 4.4 s of a processor
        # that importing the trainer takes.
        sys.modules.setdefault("torchao", None)  # type: ignore[arg-type]

    # torch and transformers take seconds
    if FIRST_STEP_VARIABLE in os.environ:
        with heavy_imports():
            from jupyter_mntrain.train.pipeline.first_step import try_first_step

        try_first_step(recipe, chosen)
        return

    with heavy_imports():
        from jupyter_mntrain.train.loop import train

    train(recipe, chosen)


def _for_these_ranks(recipe: Recipe) -> Recipe:
    """Return the recipe with fewer replicas if the job continues without some of its nodes.

    Raises:
        RecipeError: it cannot run on so many ranks.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    whole = int(os.environ.get(WHOLE_WORLD_SIZE_VARIABLE, str(ranks)))
    fitted = on_fewer_ranks(recipe, ranks, whole)
    check(fitted, ranks)
    before, now = recipe.data_parallel, fitted.data_parallel
    if now != before and os.environ.get("RANK", "0") == "0":
        left = (
            f"{ranks} of {whole} ranks are left, so {now.replicas} of {before.replicas} replicas "
        )
        each = ranks // now.replicas
        left += f"continue, with {each} rank{'s' * (each > 1)} each"
        left += ", without syncs" if before.syncs_rarely and not now.syncs_rarely else ""
        print(f"data parallel: {left}", flush=True)  # noqa: T201 - the job's log
    return fitted


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jupyter_mntrain.train",
        description="Train a decoder, pipeline-parallel under torchrun or alone.",
    )
    parser.add_argument("recipe", help="a TOML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="change one field of the recipe; may be repeated",
    )
    parser.add_argument(
        "--auto",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="what a launch has chosen for a field that is auto; by default the ranks choose",
    )
    return parser


def _leave(exit_code: int) -> NoReturn:
    """Exit with this code; after an error, skip the interpreter's cleanup.

    After an error the process group still exists, since destroying it could block on dead peers.
    Its threads keep running while C++ destroys its globals, which sometimes ends in "terminate
    called" and SIGABRT and hides the real error.
    """
    if exit_code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


if __name__ == "__main__":
    lose_lines_of_a_full_disk()
    _leave(main())
