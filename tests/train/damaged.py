"""Files of other people's making, damaged in every way: ``python -m tests.train.damaged``.

A model, or a run's checkpoints, is written; one of its files is cut, flipped, zeroed, swapped with
another or emptied, or a value in it becomes another; and everything that reads it is run: training
with an export, answering, resuming. What must hold of each:

* It ends as with whole files, bit for bit; or in one line, which names the file and what to do.
* Other numbers without a word are allowed only where a file is a whole one of its kind, which just
  says something else, as after ``"rope_theta": 1e4`` → ``2e4``. Then a digest differs that ranks
  compare and checkpoints hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any, Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers.utils import logging

from jupyter_mntrain.families.directories import GENERATION
from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.conversation import ChatMessage, ChatRequest
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.answering.generate import load_saved, saved_of
from jupyter_mntrain.train.answering.loaded import Answering, load_model
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION
from jupyter_mntrain.train.loop import Trainer, train
from jupyter_mntrain.train.world import join_world
from tests.train.families import write_model
from tests.train.tokenizer_files import SIZE, TEXT, Kind, write_tokenizer

PATIENCE_S: Final = 120
BLOCK: Final = 4096
TEMPLATE: Final = (
    "{% for message in messages %}{{ '<turn>' + message['role'] + '\\n' + message['content'] }}"
    "{{ eos_token + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<turn>assistant\\n' }}"
    "{% endif %}"
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 7, 10**6, 0.5, 1e308, "", "x", "</s>", [], [1, "x"]),
    *({}, {"x": 1}, [[]]),
)


@dataclass(frozen=True)
class Seen:
    """What came of reading.

    Args:
        numbers: ids, masks, losses, answers: all that counts.
        digests: of what ranks compare, and checkpoints hold.
        said: what the log has.
    """

    numbers: Any
    digests: dict[str, str]
    said: str = ""

    @property
    def learned(self) -> Any:
        """Of its numbers, what training itself depends on."""
        return self.numbers[:4]


@dataclass(frozen=True)
class Subject:
    """A folder of files, and everything that reads them."""

    name: str
    folder: Path
    look: Callable[[Path, Path], Seen]
    whole: Seen

    def files(self) -> list[Path]:
        found = (one.relative_to(self.folder) for one in self.folder.rglob("*") if one.is_file())
        return sorted(one for one in found if one.parts[0] != "step-00000001")


# Subjects


def model(root: Path, name: str, family: str, kind: Kind, form: str, tokenizer: str) -> Subject:
    """A model's folder.

    Args:
        form: of its weights: ``safetensors``, ``bin``, or ``shards`` of the first.
    """
    folder = root / name
    # So small that all of its bytes are in the hash that ranks compare.
    made = write_model(family, folder, vocab_size=SIZE + 8, num_hidden_layers=3)
    made.generation_config.eos_token_id = [2, 5]
    made.save_pretrained(folder, max_shard_size="30KB" if form == "shards" else "1GB")
    if form != "safetensors":
        (folder / "model.safetensors").unlink()
    if form == "bin":
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
    write_tokenizer(kind, folder, tokenizer)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return Subject(name, folder, learn_and_answer, learn_and_answer(_copied(folder, root), root))


def checkpoints(root: Path) -> Subject:
    folder = root / "run"
    with _kept(folder):
        for steps in (1, 2):  # a save is waited for only at the end
            train(_recipe(root, "model.preset=llama-tiny", f"train.steps={steps}", *KEEPS))
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    return Subject("run", folder, go_on_and_answer, go_on_and_answer(_copied(folder, root), root))


def _copied(folder: Path, root: Path) -> Path:
    """A copy, always at the same place: paths are in digests."""
    copy = root / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy))


KEEPS: Final = (
    *("checkpoint.interval_steps=1", "checkpoint.keep=3", "output.at_end=false"),
    # The same learning rate in each step, however many there are.
    *("optimizer.warmup_steps=0", "optimizer.min_ratio=1"),
)


class _Watched(Trainer):
    """Leaves what was trained."""

    def run(self) -> Any:
        result = super().run()
        tokens = self.output.tokens
        answers = None if tokens.answers is None else tokens.answers.tolist()
        _Watched.last = Seen(
            [tokens.ids.tolist(), answers, result.losses, result.gradient_norms],
            dict(self.checkpoints.digests),
        )
        return result

    last: Seen


def learn_and_answer(folder: Path, root: Path) -> Seen:
    """Train two steps, export, and let the model answer before and after."""
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    changes = [f'model.path="{folder}"', f'output.directory="{out}"', "checkpoint.at_end=false"]
    train(_recipe(root, *changes, "train.steps=2", "data.format=chat"), made_by=_Watched)
    learned = _Watched.last
    answers = [_answer(Answering.of(load_model(one), one, None)) for one in (folder, out)]
    return Seen([*learned.numbers, answers], learned.digests)


def go_on_and_answer(folder: Path, root: Path) -> Seen:
    """Answer from the newest checkpoint, then go on from it."""
    recipe = _recipe(root, "model.preset=llama-tiny", "train.steps=3", *KEEPS)
    with join_world("cpu", PATIENCE_S) as world:
        found = saved_of(world, folder, "run", None)
        saved = load_saved(world, folder, found, recipe, lambda *_, **__: None)
        answer = _answer(Answering.of(saved, folder / DESCRIPTION, found.manifest.step))
    said = StringIO()
    with _kept(folder), redirect_stdout(said):
        train(recipe, made_by=_Watched)
    ids, answers, losses, norms = _Watched.last.numbers
    of_step = [found.manifest.step, answer]
    return Seen([ids, answers, losses[-1], norms[-1], of_step], {}, said.getvalue())


def _answer(answering: Answering) -> Any:
    question = ChatRequest(1, messages=(ChatMessage("user", TEXT[3]),), is_completion=True)
    given = answering.tokens_of(question)
    with torch.no_grad():
        logits = answering.model(given).logits[0, -1].tolist()
    return [given.tolist(), answering.ends, logits, answering.tokenizer.decode(given[0])]


def _recipe(root: Path, *changes: str) -> Any:
    usual = [f"data.source={root / 'data.jsonl'}", "data.sequence_length=32", "train.batch_size=4"]
    usual += ["pipeline.microbatches=2", "train.device=cpu", "data.vocabulary_size=300"]
    return parse_recipe("", [*usual, *changes])


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    os.environ[CHECKPOINT_VARIABLE] = str(folder)
    try:
        yield
    finally:
        del os.environ[CHECKPOINT_VARIABLE]


def subjects(root: Path) -> list[Subject]:
    """All of them, written into ``root``."""
    rows = []
    for at, text in enumerate(TEXT[:24]):
        turns = [{"role": "user", "content": text}, {"role": "assistant", "content": TEXT[-at]}]
        rows.append(json.dumps({"messages": turns, "text": text}))
    (root / "data.jsonl").write_text("\n".join(rows))
    return [
        model(root, "json", "olmo2", "json", "shards", "PreTrainedTokenizerFast"),
        model(root, "pieces", "granite", "bpe", "safetensors", "LlamaTokenizer"),
        model(root, "merges", "gpt2", "merges", "bin", "GPT2Tokenizer"),
        checkpoints(root),
    ]


# Damage


@dataclass(frozen=True)
class Damage:
    """What is done to a file.

    Args:
        may_speak: the file may still be a whole one, and say something else.
    """

    what: str
    content: bytes
    may_speak: bool = False


def damage(content: bytes, others: list[bytes], chance: random.Random) -> Damage:
    kinds = [_cut, _cut_line, _flipped, _flipped, _letter, _zeroed, _emptied, _value, _value]
    chosen = chance.choice([*kinds, lambda *_: _swapped(others, chance)])
    made = chosen(content, chance)
    return made if made.content != content else _emptied(content, chance)


def _cut(content: bytes, chance: random.Random) -> Damage:
    end = chance.choice([chance.randrange(len(content) + 1), max(0, len(content) - 1)])
    return Damage(f"cut to {end} of {len(content)}", content[:end])


def _cut_line(content: bytes, chance: random.Random) -> Damage:
    lines = content.splitlines(keepends=True)
    end = chance.randrange(len(lines) + 1)
    return Damage(f"cut to {end} of {len(lines)} lines", b"".join(lines[:end]))


def _flipped(content: bytes, chance: random.Random) -> Damage:
    made, places = bytearray(content), []
    for _ in range(chance.choice([1, 1, 1, 3]) if content else 0):
        place = chance.randrange(min(len(made), chance.choice([64, 2048, len(made)])))
        made[place] ^= 1 << chance.randrange(8)
        places.append(place)
    return Damage(f"flipped bits of {places}", bytes(made), may_speak=True)


def _letter(content: bytes, chance: random.Random) -> Damage:
    made = bytearray(content)
    place = chance.randrange(len(made)) if made else 0
    made[place : place + 1] = bytes([chance.choice(b'0123456789abcxyz"{}[],:. \n<>')])
    return Damage(f"another letter at {place}", bytes(made), may_speak=True)


def _zeroed(content: bytes, chance: random.Random) -> Damage:
    begin = BLOCK * chance.randrange(len(content) // BLOCK + 1)
    end = min(len(content), begin + BLOCK)
    made = content[:begin] + bytes(end - begin) + content[end:]
    return Damage(f"zeroed {begin} to {end}", made, may_speak=True)


def _emptied(content: bytes, chance: random.Random) -> Damage:
    return Damage("emptied", b"")


def _swapped(others: list[bytes], chance: random.Random) -> Damage:
    return Damage("another file", chance.choice(others), may_speak=True)


def _value(content: bytes, chance: random.Random) -> Damage:
    """Another value of a JSON file, anywhere."""
    try:
        found = json.loads(content)
    except ValueError:
        return _flipped(content, chance)
    path: list[Any] = []
    place, outer = found, None
    while isinstance(place, (dict, list)) and place and (not path or chance.random() < 0.75):
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        path.append(key)
        outer, place = place, place[key]
    if outer is None:
        return _flipped(content, chance)
    if chance.random() < 0.2:
        del outer[path[-1]]
        what = "gone"
    else:
        outer[path[-1]] = chance.choice(VALUES)
        what = json.dumps(outer[path[-1]])[:30]
    return Damage(f"{path} is {what}", json.dumps(found).encode(), may_speak=True)


# Trying


@dataclass(frozen=True)
class Finding:
    """What should not be.

    Args:
        kind: the same for findings of one cause.
    """

    kind: str
    case: str
    detail: str = ""


def attempt(subject: Subject, root: Path, chance: random.Random) -> tuple[str, str, Finding | None]:
    """Damage a file; return what came of it, the case, and what is wrong with that."""
    file = chance.choice(subject.files())
    content = (subject.folder / file).read_bytes()
    others = [(subject.folder / one).read_bytes() for one in subject.files() if one != file]
    done = damage(content, others, chance)
    folder = _copied(subject.folder, root)
    (folder / file).write_bytes(done.content)
    case = f"{subject.name}/{file}: {done.what}"
    try:
        with _patience(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            seen = subject.look(folder, root)
    except MntrainError as error:
        return "refused", case, _judged_words(error, file, case)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of Rust, too
        place = traceback.extract_tb(error.__traceback__)
        ours = [one for one in place if "jupyter_mntrain" in one.filename][-1:]
        where = f"{Path(ours[0].filename).name}:{ours[0].name}" if ours else "elsewhere"
        kind = f"{type(error).__name__} in {where}: {str(error)[:60]!r}"
        return "traceback", case, Finding(kind, case, "".join(traceback.format_exception(error)))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if seen.numbers == subject.whole.numbers:
        return "same numbers", case, None
    if done.may_speak and file.name == GENERATION and seen.learned == subject.whole.learned:
        return "other ends", case, None
    if subject.name == "run" and seen.learned == subject.whole.learned:
        return "an older checkpoint", case, _judged_skip(seen, subject, file, case)
    if done.may_speak and (seen.digests != subject.whole.digests):
        return "another model", case, None
    return (
        "other numbers",
        case,
        Finding(f"other numbers after {done.what.split()[0]}: {file}", case),
    )


def _judged_words(error: MntrainError, file: Path, case: str) -> Finding | None:
    said = str(error)
    if "\n" in said or not error.problem.fix:
        return Finding("not one line with a fix", case, said)
    # One that writes less is whole, and leaves less text.
    is_length = "the model takes" in said  # as the config has it
    is_template = file.suffix == ".jinja" and ("chat template" in said or "the text has" in said)
    is_weights = file.suffix in (".safetensors", ".bin") and "weights" in said
    names = filter(None, (file.name, file.parent.name))
    named = is_length or is_template or is_weights or any(name in said for name in names)
    if not named:
        return Finding(f"{file.name} is not named: {said.rpartition('/')[2][:80]}", case, said)
    return None


def _judged_skip(seen: Seen, subject: Subject, file: Path, case: str) -> Finding | None:
    """Whoever goes on from an older one hears of it."""
    if file.parent.name in seen.said or seen.numbers[4][0] == subject.whole.numbers[4][0]:
        return None
    return Finding(f"an older checkpoint without a word: {file.name}", case, seen.said)


@contextmanager
def _patience() -> Iterator[None]:
    def tell(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not within {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, tell)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def search(
    root: Path,
    seeds: Iterable[int],
    minutes: float,
    tell: Callable[[str], None],
    *,
    shows: bool = False,
) -> list[Finding]:
    """Try cases until the time is over; return one finding of each kind.

    Args:
        shows: tell every case.
    """
    with redirect_stdout(StringIO()):
        known = subjects(root)
    found: dict[str, Finding] = {}
    came = Counter[str]()
    end_s = time.monotonic() + 60 * minutes
    for seed in seeds:
        if time.monotonic() > end_s:
            break
        chance = random.Random(seed)
        what, case, wrong = attempt(chance.choice(known), root, chance)
        came[what] += 1
        if shows:
            tell(f"seed {seed}: {what}: {case}")
        if wrong is not None and wrong.kind not in found:
            found[wrong.kind] = wrong
            tell(f"seed {seed}: {wrong.kind}\n    {wrong.case}\n    {wrong.detail}")
    tell(f"{came.total()} cases: " + ", ".join(f"{n} {what}" for what, n in came.most_common()))
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--cases", type=int, help="only so many")
    parser.add_argument("--every", action="store_true", help="show every case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    first, count = arguments.seed, arguments.cases or 10**9
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        seeds = range(first, first + count)
        say = partial(print, flush=True)
        found = search(Path(folder), seeds, arguments.minutes, say, shows=arguments.every)
    return len(found) > 0


if __name__ == "__main__":
    raise SystemExit(main())
