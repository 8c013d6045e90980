from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.families.presets import FAMILIES, PRESETS
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import check, load_recipe, parse_recipe, preset_config
from jupyter_mntrain.recipe.sections import Recipe
from tests.wording import says, wording


def refusal(text: str, *overrides: str, world_size: int = 0, layers: int | None = None) -> str:
    def read() -> None:
        check(parse_recipe(text, overrides), world_size or 1, layers=layers)

    with pytest.raises(RecipeError) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    assert says(". Fix: ", message)
    assert caught.value.exit_code == 2
    return message


def test_reading_a_recipe_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from jupyter_mntrain.recipe.parse import check, load_recipe, Recipe\n"
        "from jupyter_mntrain.train import parse_recipe\n"
        "sys.exit(bool({'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_recipe_is_a_whole_one() -> None:
    recipe = parse_recipe("")
    assert recipe == Recipe()
    for world_size in (1, 2, 3, 4):
        check(recipe, world_size)


def test_a_field_is_taken_by_its_name_before_and_its_new_one_is_said() -> None:
    zero_bubble = '[pipeline]\nschedule = "eager-zero-bubble"\n'
    with pytest.warns(FutureWarning, match=r"pipeline\.kept_back is now pipeline\.deferred"):
        old = parse_recipe(f"{zero_bubble}kept_back = [0, 1]\n")
    assert old == parse_recipe(f"{zero_bubble}deferred = [0, 1]\n")
    with pytest.raises(RecipeError, match=r"kept_back and pipeline\.deferred are both given"):
        parse_recipe(f"{zero_bubble}deferred = [0, 1]\nkept_back = [0, 1]\n")


def test_a_full_recipe_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        """
        [model]
        preset = "qwen3-tiny"
        layers = 6
        dtype = "bfloat16"
        attention = "eager"
        [data]
        source = "notes.txt"
        sequence_length = 128
        vocabulary_size = 4096
        [pipeline]
        schedule = "interleaved-1f1b"
        microbatches = 4
        split = [1, 2, 2, 1]
        [optimizer]
        learning_rate = 1
        betas = [0.8, 0.99]
        warmup_steps = 5
        [train]
        steps = 50
        batch_size = 8
        accumulation = 2
        device = "cpu"
        timeout_s = 30
        """
    )
    recipe = load_recipe(path, ["train.steps=60", "model.attention=sdpa", "data.seed = 3"])
    check(recipe, 2)
    assert recipe.split == (1, 2, 2, 1)
    assert recipe.stages(2) == 4
    assert recipe.stages(1) == 1
    assert (recipe.train.steps, recipe.model.attention, recipe.data.seed) == (60, "sdpa", 3)
    assert recipe.microbatch_size == 1
    assert recipe.tokens_per_step == 8 * 128
    assert recipe.optimizer.learning_rate == 1.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[model]\nhiden_size = 8", "model.hiden_size: no such field. Fix: use hidden"),
        ("[modle]", "modle: no such section. Fix: use model"),  # codespell:ignore
        ("[train]\nzzz = 1", "train.zzz: no such field. Fix: use one of steps, epochs"),
        ("[train]\nsteps = 0", "train.steps = 0 is not allowed. Fix: give a whole number from 1"),
        ("[train]\nsteps = 2.5", "train.steps = 2.5 is not allowed"),
        ("[train]\nsteps = true", "train.steps = true is not allowed"),
        ('[train]\nsteps = "10"', 'train.steps = "10" is not allowed'),
        ('[train]\ndevice = "gpu"', '"gpu" is not allowed. Fix: give one of "auto", "cpu", "cuda"'),
        (
            "[train]\nepochs = 0",
            "train.epochs = 0 is not allowed. Fix: give a number above 0 and up",
        ),
        ("[train]\nsteps = 5\nepochs = 2", "train.steps and train.epochs are both given. Fix: rem"),
        (
            "[train]\nepochs = 2\noverfit_batch = true",
            "with overfit_batch every step trains on the first batch. Fix: use steps, or leave",
        ),
        ("[optimizer]\nlearning_rate = 0", "a number above 0 and up to 10"),
        ("[optimizer]\nlearning_rate = nan", "learning_rate = nan is not allowed"),
        ("[optimizer]\nlearning_rate = inf", "learning_rate = inf is not allowed"),
        ("[optimizer]\nbetas = [0.9, 1.0]", "a list of 2, each a number from 0 and below 1"),
        ("[optimizer]\nbetas = [0.9]", "optimizer.betas = [0.9] is not allowed"),
        ("[optimizer]\nwarmup_steps = 200", "optimizer.warmup_steps = 200: more than train.steps"),
        ("[evaluation]\nstop_after = 3", "evaluation.stop_after = 3: no evaluations are scheduled"),
        (
            "[optimizer]\npower = 3",
            'optimizer.power: schedule = "cosine" does not use it. Fix: leave power out or use',
        ),
        ("[optimizer]\ndecay_share = 0.5", 'use schedule = "wsd"'),
        ('[optimizer]\nschedule = "step"', 'one of "constant", "cosine", "linear", "polynomial"'),
        (
            '[optimizer]\nschedule = "wsd"\ndecay_share = 0.95',
            "takes 95 steps, and the warm-up of 10 leaves 90. Fix: use at most 0.9, or more steps",
        ),
        ('[optimizer]\nkind = "sgd"', 'one of "adafactor", "adamw", "adamw-4bit", "adamw-8bit"'),
        (
            '[model]\ndtype = "float32"\n[optimizer]\nprecision = "float32-master"',
            "the weights are float32 already",
        ),
        ('[optimizer]\nkind = "adafactor"\nbetas = [0.5, 0.9]', "adafactor uses its own rates"),
        (
            '[memory]\ncompile = true\n[pipeline]\nschedule = "eager-zero-bubble"',
            "memory.compile = true: eager-zero-bubble defers gradients of weights",
        ),
        (
            '[memory]\ncompile = true\n[pipeline]\nschedule = "zbv"',
            "memory.compile = true: zbv splits the backward pass",
        ),
        (
            '[memory]\ncheckpointing = "selective"\n[pipeline]\nschedule = "dualpipev"',
            'checkpointing = "selective": dualpipev splits the backward pass',
        ),
        (
            '[optimizer]\ngrad_dtype = "float32"\n[data_parallel]\nshards = 2',
            "sharded gradients have the dtype of the weights. Fix: leave grad_dtype out or use",
        ),
        (
            '[optimizer]\ngrad_dtype = "float32"\n[pipeline]\nschedule = "zbv"',
            'optimizer.grad_dtype = "float32": zbv splits the backward pass',
        ),
        (
            '[memory]\ncheckpointing = "none"\ncheckpointing_every = 2',
            'recomputed, because memory.checkpointing is "none". Fix: use checkpointing = "full"',
        ),
        (
            "[evaluation]\nprompts = ['a', ' ']\ninterval_steps = 1",
            "evaluation.prompts[1]: the prompt is empty. Fix: set one",
        ),
        (
            "[evaluation]\nprompts = ['a']",
            "no evaluations are scheduled. Fix: set evaluation.interval_steps",
        ),
        (
            f"[evaluation]\ninterval_steps = 1\nprompts = {['a'] * 9}",
            "evaluation.prompts: 9 prompts, and every evaluation runs all of them. Fix: keep at",
        ),
        (
            "[evaluation]\ninterval_steps = 1\nprompts = ['a']\nprompt_tokens = 256",
            "evaluation.prompt_tokens = 256: with the prompt exceeds data.seq",
        ),
        (
            "[evaluation]\nprompts = 'a'",
            'evaluation.prompts = "a" is not allowed. Fix: give a list',
        ),
        (
            "[evaluation]\nprompts = [1]",
            "evaluation.prompts = [1] is not allowed. Fix: give a list",
        ),
        ("[evaluation]\nprompt = ['a']", "evaluation.prompt: no such field. Fix: use pro"),
        (
            "model = { attention = 'flash_attention_2', dtype = 'float32' }",
            'flash attention does not compute in float32. Fix: use dtype = "bfloat16"',
        ),
        ("[memory]\nfused_backward = true", "optimizer.clip_norm = 1 needs all gradients before"),
        (
            "[memory]\noffload_activations = true\n[train]\ndevice = 'cpu'",
            "activations on a CPU are in host memory already",
        ),
        ("[memory]\nloss = 'liger'\n[train]\ndevice = 'cpu'", 'requires CUDA. Fix: use "chunked"'),
        ("[memory]\nloss = 'liger'\n[pipeline]\nschedule = 'zbv'", "Liger has one backward pass"),
        ("[pipeline]\nsplit = [3, 0]", "pipeline.split = [3, 0] is not allowed"),
        ("[data]\nvocabulary_size = 256", "from 257 to"),
        ('[model]\npreset = "lama-8m"', "no such preset. Fix: use llama-8m"),
        ('[model]\npreset = "gpt"', "no such preset. Fix: use one of llama-tiny"),
        ('[model]\npreset = "llama-8m"\npath = "/m"', "model.preset and model.path are both given"),
        ('[model]\npath = "/m"\nlayers = 3', "model.layers: the model directory defines this"),
        (
            "[model]\nhidden_size = 250",
            "even multiple of 8 heads. Fix: use a multiple of 16",
        ),
        ("[model]\nkey_value_heads = 3", "does not divide 8 heads"),
        ("model = 3", "model = 3 is not allowed. Fix: give a [section]"),
        ("[model", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, told: str) -> None:
    assert says(told, refusal(text))


@pytest.mark.parametrize(
    ("overrides", "world_size", "told"),
    [
        (
            ["pipeline.microbatches=2", "pipeline.schedule=1f1b"],
            3,
            "pipeline.microbatches = 2: fewer than the 3 pipeline",
        ),
        (["pipeline.microbatches=2", "pipeline.schedule=1f1b"], 3, "Fix: use 3 or more"),
        (
            ["pipeline.microbatches=2", "pipeline.schedule=interleaved-1f1b"],
            3,
            "fewer than the 3 ranks",
        ),
        (
            ["pipeline.microbatches=7", "pipeline.schedule=interleaved-1f1b"],
            3,
            "a multiple of its 2 rounds. Fix: use 6 or 9",
        ),
        (["pipeline.stages_per_rank=2"], 2, "1f1b runs one per rank"),
        (
            ["pipeline.stages_per_rank=1", "pipeline.schedule=interleaved-1f1b"],
            2,
            "interleaved-1f1b needs 2 or more",
        ),
        (["model.layers=2"], 3, "3 pipeline stages need 3 layers or more; the model has 2"),
        (["pipeline.split=[4,5]"], 2, "sums to 9, but the model has 8 layers"),
        (["pipeline.split=[4,4]"], 3, "2 numbers for 3 pipeline stages"),
        (
            ["memory.fused_backward=true", "optimizer.clip_norm=0", "model.tie_embeddings=true"],
            2,
            "the embedding is tied, and its gradient is complete only after the backward pass",
        ),
        (["train.batch_size=12", "pipeline.microbatches=8"], 2, "not a multiple of 8"),
        (["train.accumulation=3", "pipeline.microbatches=8"], 2, "Fix: use 24 or 48"),
    ],
)
def test_what_cannot_run_on_these_ranks_is_one_line(
    overrides: list[str], world_size: int, told: str
) -> None:
    assert says(told, refusal("", *overrides, world_size=world_size))


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.packing=best-fit", "pipeline.microbatches=32"],
        ["data.packing=best-fit", "pipeline.microbatches=1"],
        ["data.packing=wrapped"],
        ["data.format=chat"],
    ],
)
def test_flash_attention_is_taken_with_every_packing(overrides: list[str]) -> None:
    parse_recipe("", ["model.attention=flash_attention_2", "model.dtype=bfloat16", *overrides])


def test_layers_of_a_directory_are_checked_when_they_are_known() -> None:
    recipe = parse_recipe('[model]\npath = "/nowhere"')
    check(recipe, 2)
    with pytest.raises(
        RecipeError, match=wording("2 pipeline stages need 2 layers or more; the model has 1")
    ):
        check(recipe, 2, layers=1)


@pytest.mark.parametrize("override", ["steps=3", "train.steps", "=3", "train.=3", ".steps=3"])
def test_an_override_that_is_none(override: str) -> None:
    assert says("must have the form section.field=value", refusal("", override))


def test_an_override_is_checked_like_the_file() -> None:
    assert says("use steps", refusal("", "train.stps=3"))
    assert 'train.steps = "many"' in refusal("", "train.steps=many")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=wording("cannot be read: No such file")):
        load_recipe(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=wording("not UTF-8")):
        load_recipe(binary)


@given(
    section=st.sampled_from(["model", "data", "pipeline", "optimizer", "train", "other"]),
    field=st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20),
    value=st.sampled_from(["1", "-1", "0.5", "true", '"text"', "[1, 2]", "{ a = 1 }", "nan"]),
)
def test_any_field_is_taken_or_refused_by_name(section: str, field: str, value: str) -> None:
    message = None
    try:
        parse_recipe(f"[{section}]\n{field} = {value}")
    except RecipeError as error:
        message = str(error)
    assert message is None or (section in message and "\n" not in message)


@given(layers=st.integers(1, 100), world_size=st.integers(1, 8))
def test_an_even_split_is_even_and_whole(layers: int, world_size: int) -> None:
    if layers < world_size:
        return
    layout = lay_out(Recipe(), world_size, layers)
    sizes = [len(stage) for stage in layout.stages]
    assert [layer for stage in layout.stages for layer in stage] == list(range(layers))
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    held = [layer for rank in range(world_size) for layer in layout.layers_of(rank)]
    assert sorted(held) == list(range(layers))


def test_neighbors() -> None:
    recipe = parse_recipe('[pipeline]\nschedule = "interleaved-1f1b"')
    ring = lay_out(recipe, 3, 6)
    assert ring.stages_of(1) == (1, 4)
    assert [ring.neighbors(rank, tied=False) for rank in range(3)] == [(1, 2), (0, 2), (0, 1)]
    line = lay_out(Recipe(), 3, 6)
    assert [line.neighbors(rank, tied=False) for rank in range(3)] == [(1,), (0, 2), (1,)]
    assert [line.neighbors(rank, tied=True) for rank in range(3)] == [(1, 2), (0, 2), (0, 1)]
    assert [line.tied_peer(rank) for rank in range(3)] == [2, None, 0]
    assert lay_out(Recipe(), 1, 6).neighbors(0, tied=True) == ()


def test_presets_cover_all_families() -> None:
    for family in FAMILIES:
        for size in ("tiny", "8m"):
            assert PRESETS[f"{family}-{size}"]["model_type"] == family
    changed = preset_config(parse_recipe("[model]\ntie_embeddings = true\nlayers = 3").model)
    assert changed["tie_word_embeddings"] is True
    assert changed["num_hidden_layers"] == 3


def test_shards_go_with_compiled_layers_selective_checkpointing_and_offloading() -> None:
    words = ["data_parallel.shards=8", "data_parallel.reshard_after_forward=true"]
    saving = ["checkpointing=selective", "compile=true", "offload_activations=true"]
    recipe = parse_recipe("", [*words, *(f"memory.{one}" for one in saving)])
    check(recipe, 8)
    assert (recipe.compiles, recipe.checkpointing) == (True, "selective")
