"""Serving: ``python -m …train.answering.serving`` runs ``transformers serve`` on rank 0.

Clients speak to a front before it, which names the model (``openai_front.py``).

Of a run, the newest checkpoint is first written as a Hugging Face directory in the attempt's own,
which is deleted at the end. The server ends with this process, which ends with the job.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError
from urllib.request import urlopen

from jupyter_mntrain.model import tunables

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from tornado.web import Application
from transformers import PreTrainedTokenizerBase, __version__
from transformers.utils.import_utils import is_serve_available

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.errors import MissingLibraryError, MntrainError, RecipeError
from jupyter_mntrain.model.text.serving_address import SERVER, served_at
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.problem_file import leave_with
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.answering.generate import checkpoints_of, saved_of
from jupyter_mntrain.train.answering.loaded import (
    add_source_arguments,
    leave_when_told,
    model_in,
    weight_bytes,
)
from jupyter_mntrain.train.answering.openai_front import LARGEST_BYTES, SAFE, front
from jupyter_mntrain.train.checkpoint.keeping import export_checkpoint
from jupyter_mntrain.train.data.tokens import read_tokenizer
from jupyter_mntrain.train.model.held_memory import too_large
from jupyter_mntrain.train.world import join_world

TIMEOUT_S = tunables.seconds("train.serve_timeout_s")
LOOK_EVERY_S = 0.5
"""Interval of polling the server of `serve` until it answers."""
TELL_EVERY_S = 20.0
"""Interval at which its job says where it serves: before a rank without a step is looked at."""
LOOPBACK = "127.0.0.1"
END_S = 1.5
"""Time for the server to end: less than the grace of a failed job."""


@record
def main(argv: list[str] | None = None) -> None:
    """Serve until the job is stopped."""
    arguments = _parser().parse_args(argv)
    recipe = None if arguments.recipe is None else load_recipe(arguments.recipe, arguments.set)
    splits = recipe is None or recipe.data.split_special_tokens
    _refuse_missing(splits_special=splits)
    leave_when_told()
    with Recorder() as recorder, _model(arguments, recipe, recorder.progress) as directory:
        if directory is not None:
            name = arguments.name or directory.name
            where = (arguments.address, arguments.port)
            serve(directory, name, *where, recorder.progress, splits_special=splits)


def serve(
    directory: Path,
    name: str,
    address: str,
    port: int,
    progress: ProgressWriter,
    *,
    splits_special: bool,
) -> None:
    """Run the server and report its address.

    Args:
        name: of the model, for clients.
        splits_special: read special tokens in messages as text.

    Raises:
        RecipeError: it has ended, nothing can listen on that address, or the model is too large.
    """
    port, behind = _free_port(address, port), _free_port(LOOPBACK, 0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and (error := too_large(weight_bytes(directory))):
        raise error
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(directory)]
    command += ["--host", LOOPBACK, "--port", str(behind), "--device", device]
    if splits_special:
        command += ["--chat-template-kwargs", json.dumps(SAFE)]
    server = subprocess.Popen(command)
    try:
        progress("starting the server", 0)
        while not _answers(behind):
            _refuse_ended(server)
            time.sleep(LOOK_EVERY_S)
        has_template = read_tokenizer(directory).chat_template is not None
        app = front(
            name,
            str(directory),
            f"http://{LOOPBACK}:{behind}",
            known_fields(),
            has_template=has_template,
        )
        tell = partial(_tell, server, progress, has_template=has_template)
        asyncio.run(_serve(app, address, port, tell))
    finally:
        server.terminate()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()


def known_fields() -> dict[str, frozenset[str]]:
    """Return the request fields that ``transformers serve`` accepts, by path; empty if unknown."""
    with suppress(ImportError, AttributeError):
        from transformers.cli.serving.chat_completion import ChatCompletionHandler
        from transformers.cli.serving.completion import CompletionHandler
        from transformers.cli.serving.response import ResponseHandler

        handlers: dict[str, Any] = {
            "/v1/chat/completions": ChatCompletionHandler,
            "/v1/completions": CompletionHandler,
            "/v1/responses": ResponseHandler,
        }
        return {
            path: frozenset(handler._valid_params_class.__mutable_keys__)  # noqa: SLF001
            for path, handler in handlers.items()
        }
    return {}


async def _serve(
    app: Application, address: str, port: int, tell: Callable[[str, int], None]
) -> NoReturn:
    app.listen(port, address, max_body_size=LARGEST_BYTES)
    while True:
        tell(address, port)
        await asyncio.sleep(TELL_EVERY_S)


def _tell(
    server: subprocess.Popen[bytes],
    progress: ProgressWriter,
    address: str,
    port: int,
    *,
    has_template: bool,
) -> None:
    _refuse_ended(server)
    progress(served_at(address, port, has_template=has_template), 0)


@contextmanager
def _model(
    arguments: argparse.Namespace, recipe: Recipe | None, progress: ProgressWriter
) -> Iterator[Path | None]:
    """Provide the directory to serve, on rank 0."""
    if recipe is None:
        yield model_in(arguments.directory)
        return
    exported = Path(os.environ[METRICS_VARIABLE]).parent / "served" / arguments.run
    try:
        with join_world("cpu", TIMEOUT_S) as world:
            checkpoints = checkpoints_of(arguments.run, recipe, os.environ)
            found = saved_of(world, checkpoints, arguments.run, arguments.step)
            source = CheckpointDirectory(checkpoints)
            exported.parent.mkdir(exist_ok=True)
            run = arguments.run
            export_checkpoint(
                world, source, found, exported, recipe=recipe, run=run, progress=progress
            )
            is_head = world.is_head
        yield exported if is_head else None
    finally:
        shutil.rmtree(exported.parent, ignore_errors=True)


def _refuse_missing(*, splits_special: bool) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    missing = None
    if not is_serve_available():
        missing = "transformers serve needs FastAPI and Uvicorn, which are not installed here"
    known = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    if splits_special and not SAFE.keys() <= known.keys():
        missing = f"clients of transformers serve {__version__} could forge turns of a conversation"
    if missing is not None:
        fix = f"on this node: {sys.executable} -m pip install -U 'jupyter-mntrain[serve]'"
        raise MissingLibraryError(missing, fix=fix)


def _free_port(address: str, wished: int) -> int:
    """Return the requested port, or any free one if that is 0.

    Raises:
        RecipeError: nothing can listen there.
    """
    try:
        family = socket.getaddrinfo(address, wished)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, wished))
            return int(probe.getsockname()[1])
    except OSError as error:
        cause = f"nothing can listen on {address} port {wished}: {error.strerror}"
        raise RecipeError(cause, fix="choose another --port or --address of that node") from None


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/health", timeout=LOOK_EVERY_S) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def _refuse_ended(server: subprocess.Popen[bytes]) -> None:
    if (code := server.poll()) is not None:
        cause = f"transformers serve has ended with exit code {code}"
        raise RecipeError(cause, fix="see why in the job's log: mntrain logs")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {SERVER}")
    add_source_arguments(parser)
    parser.add_argument("--name")
    parser.add_argument("--address", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    return parser


if __name__ == "__main__":
    try:
        main()
    except MntrainError as error:
        leave_with(error)
