"""A model's own tokenizer, in the forms that people have: converted as transformers does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
from transformers import AutoTokenizer

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train import parse_recipe, train
from jupyter_mntrain.train.data import tokens
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.tokens import model_tokenizer, model_tokens
from tests.train.families import write_model
from tests.train.tokenizer_files import PROBE, SIZE, TEXT, Kind, write_tokenizer
from tests.wording import says

FORMS: list[tuple[Kind, str, str]] = [
    ("bpe", "llama", "LlamaTokenizer"),
    ("unigram", "llama", "LlamaTokenizer"),
    ("bpe", "mistral", "LlamaTokenizer"),
    ("bpe", "gemma2", "GemmaTokenizer"),
    ("bpe", "phi3", "LlamaTokenizer"),
    ("merges", "gpt2", "GPT2Tokenizer"),
    ("merges", "qwen2", "Qwen2Tokenizer"),
    ("merges", "starcoder2", "GPT2Tokenizer"),
]


def written(directory: Path, kind: Kind, family: str, tokenizer_class: str) -> Path:
    write_tokenizer(kind, directory, tokenizer_class)
    (directory / "config.json").write_text(json.dumps({"model_type": family}))
    return directory


@pytest.mark.parametrize(("kind", "family", "tokenizer_class"), FORMS)
def test_ids_are_those_of_transformers(
    kind: Kind, family: str, tokenizer_class: str, tmp_path: Path
) -> None:
    directory = written(tmp_path / "model", kind, family, tokenizer_class)
    theirs = AutoTokenizer.from_pretrained(directory)
    text = tmp_path / "text.jsonl"
    rows = [*TEXT[:50], PROBE]
    text.write_text("".join(json.dumps({"text": one}) + "\n" for one in rows))
    section = DataSection(source=str(text))
    tokens = model_tokens(read_corpus(section), section, directory, None, cache=tmp_path / "cache")
    # What people write as `</s>` is text.
    split = theirs(rows, split_special_tokens=True).input_ids
    assert tokens.ids.tolist() == [one for ids in split for one in ids]
    assert len(set(tokens.ids.tolist())) > 30


def test_a_sentencepiece_model_gives_its_own_pieces(tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "bpe", "llama", "LlamaTokenizer")
    theirs = sentencepiece.SentencePieceProcessor(str(directory / "tokenizer.model"))
    own = model_tokenizer(directory)
    for one in TEXT[:50]:
        assert own(one).input_ids == [theirs.bos_id(), *theirs.encode(one)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "family", "tokenizer_class"), [FORMS[3], FORMS[4], FORMS[5]])
def test_a_model_is_exported_with_its_converted_tokenizer(
    kind: Kind, family: str, tokenizer_class: str, tmp_path: Path
) -> None:
    source, target, text = tmp_path / "in", tmp_path / "out", tmp_path / "text.txt"
    write_model(family, source, vocab_size=SIZE + 8)
    write_tokenizer(kind, source, tokenizer_class)
    text.write_text("\n".join(TEXT))
    changes = [f"model.path={source}", f"data.source={text}", f"output.directory={target}"]
    changes += ["data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"]
    result = train(parse_recipe("", [*changes, "train.steps=1", "train.batch_size=4"]))
    assert len(result.losses) == 1
    assert (target / "tokenizer.json").is_file()
    for name in ("tokenizer.model", "vocab.json", "merges.txt"):
        (target / name).unlink(missing_ok=True)
    before, after = (AutoTokenizer.from_pretrained(one) for one in (source, target))
    for one in [*TEXT[:50], PROBE]:
        assert after(one).input_ids == before(one).input_ids
    assert after.eos_token_id == before.eos_token_id


def test_code_of_a_tokenizer_is_not_run(tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "merges", "gpt2", "Own")
    settings = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text(json.dumps({"model_type": "own"}))
    (directory / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: ...\n")
    with pytest.raises(RecipeError) as refused:
        model_tokenizer(directory)
    assert says("its own code, which it needs, is not run", str(refused.value))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_half_of_a_tokenizer_is_none(name: str, tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "merges", "gpt2", "GPT2Tokenizer")
    (directory / name).unlink()
    with pytest.raises(RecipeError) as refused:
        model_tokenizer(directory)
    assert says("neither tokenizer.json nor tokenizer.model nor vocab.json", str(refused.value))


@pytest.mark.parametrize(
    ("kind", "family", "tokenizer_class", "name"),
    [(*FORMS[0], "tokenizer.model"), (*FORMS[5], "merges.txt")],
)
@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.97])
def test_a_file_that_ends_early_gives_no_other_ids(
    kind: Kind, family: str, tokenizer_class: str, name: str, share: float, tmp_path: Path
) -> None:
    """Cut where a piece or a line ends, which nobody else notices."""
    file = written(tmp_path / "model", kind, family, tokenizer_class) / name
    content = file.read_bytes()
    end = content.find(b"\n", int(share * len(content))) + 1
    if kind == "bpe":
        from sentencepiece import sentencepiece_model_pb2

        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(content)
        kept = sentencepiece_model_pb2.ModelProto()
        kept.pieces.extend(model.pieces[: int(share * len(model.pieces))])
        end = kept.ByteSize()
    file.write_bytes(content[:end])
    with pytest.raises(RecipeError) as refused:
        model_tokenizer(file.parent)
    assert says(f"cannot read {name}: ", str(refused.value))
    assert str(file.parent) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["x", "##", "\u00e9"])
def test_a_prefix_that_merges_lack_is_named(value: str, tmp_path: Path) -> None:
    """tokenizers 0.23 ends the process: it cuts characters of several bytes in half."""
    write_tokenizer("json", tmp_path, "PreTrainedTokenizerFast")
    file = tmp_path / "tokenizer.json"
    given = json.loads(file.read_text())
    given["model"]["continuing_subword_prefix"] = value
    file.write_text(json.dumps(given))
    with pytest.raises(RecipeError) as refused:
        model_tokenizer(tmp_path)
    assert says("its continuing_subword_prefix is not in the merge", str(refused.value))


@pytest.mark.parametrize("module", ["sentencepiece", "google.protobuf"])
def test_a_library_that_is_not_installed_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = written(tmp_path / "model", *FORMS[0])
    monkeypatch.setattr(tokens, "find_spec", lambda name: name != module or None)
    with pytest.raises(RecipeError) as refused:
        model_tokenizer(directory)
    assert module in refused.value.cause
    assert says("jupyter-mntrain[sentencepiece]", refused.value.fix or "")
