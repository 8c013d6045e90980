"""Tokenizers as people have them in files, small ones, trained on some words."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Literal

import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

Kind = Literal["json", "bpe", "unigram", "merges"]

TEXT = [f"The {n} bubbles of a pipeline, été {n * n}: it's microbatch {n}!" for n in range(400)]
PROBE = " The pipeline's  20 bubbles\n\tété \N{SNOWMAN}</s> it's microbatch<|endoftext|>!"
SIZE = 320


def write_tokenizer(kind: Kind, directory: Path, tokenizer_class: str) -> None:
    """Write one without ``tokenizer.json``, unless that is the ``kind``."""
    directory.mkdir(exist_ok=True)
    if kind in ("bpe", "unigram"):
        (directory / "tokenizer.model").write_bytes(pieces(kind))
        config: dict[str, object] = {"add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
    elif kind == "merges":
        byte_level().model.save(str(directory))
        config = {"eos_token": "<|endoftext|>"}
    else:
        own = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|endoftext|>")
        own.save_pretrained(directory)
        return
    text = json.dumps({"tokenizer_class": tokenizer_class, **config})
    (directory / "tokenizer_config.json").write_text(text)


def pieces(kind: str) -> bytes:
    """A SentencePiece model, as those of Llama 2 and Gemma are made."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=written,
        vocab_size=SIZE,
        model_type=kind,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<turn>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def byte_level() -> Tokenizer:
    """As GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer
