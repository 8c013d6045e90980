"""Small tokenizers, each built as those of a family are: model, normalizer, markers, first tokens.

They are trained here, and saved with the class that the family's own ``tokenizer_config.json``
names: transformers builds a tokenizer by that class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SIZE = 700
"""Most tokens that are learned, bytes among them."""

_TIKTOKEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = _TIKTOKEN.replace(r"\p{N}{1,3}", r"\p{N}")


def sentencepiece_legacy(texts: Sequence[str], markers: Sequence[str] = ()) -> Tokenizer:
    """Llama 1 and 2, Mistral 0.1 and 0.2, as converted: U+2581 before each part of a text."""
    made = _byte_fallback(
        (one.replace("\n", " ") for one in texts),  # in these vocabularies a line end is a byte
        ("<unk>", "<s>", "</s>", *markers),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=None,
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _begins_with(made, "<s>")


def sentencepiece(texts: Sequence[str], markers: Sequence[str] = ()) -> Tokenizer:
    """Mistral 0.3: U+2581 before the first part of a text alone."""
    made = _byte_fallback(
        (one.replace("\n", " ") for one in texts),  # in these vocabularies a line end is a byte
        ("<unk>", "<s>", "</s>", *markers),
        normalizer=None,
        pre_tokenizer=pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False),
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _begins_with(made, "<s>")


def gemma(texts: Sequence[str]) -> Tokenizer:
    """Gemma: no U+2581 before a text, white space in tokens of its own."""
    made = _byte_fallback(
        texts,
        (
            "<pad>",
            "<eos>",
            "<bos>",
            "<unk>",
            "<mask>",
            "<start_of_turn>",
            "<end_of_turn>",
        ),
        normalizer=normalizers.Replace(" ", "▁"),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _begins_with(made, "<bos>")


def byte_level(
    texts: Sequence[str],
    markers: Sequence[str],
    *,
    pattern: str | None = _TIKTOKEN,
    plain: Sequence[str] = (),
    first: str | None = None,
    stripping: bool = False,
    trims: bool = False,
) -> Tokenizer:
    """GPT-2 and all that follow it.

    Args:
        pattern: what splits a text before its bytes are merged; GPT-2's own without one.
        plain: markers that are no special tokens, as Qwen 3's ``<think>``.
        first: put before each text.
        stripping: markers take the white space around them, as Phi 4's.
        trims: offsets leave out the space before a word, as RoBERTa's and old GPT-2's do.
    """
    made = Tokenizer(models.BPE(ignore_merges=first is not None))
    if pattern == _QWEN:
        made.normalizer = normalizers.NFC()
    if pattern is None:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=[],
    )
    made.train_from_iterator(texts, trainer)
    made.add_special_tokens(
        [AddedToken(one, lstrip=stripping, rstrip=stripping, normalized=False) for one in markers]
    )
    made.add_tokens([AddedToken(one, normalized=False) for one in plain])
    last = processors.ByteLevel(trim_offsets=trims)
    if first is None:
        made.post_processor = last
    else:
        made.post_processor = processors.Sequence([last, _template(made, first)])
    return made


def _byte_fallback(
    texts: Iterable[str],
    special: Sequence[str],
    *,
    normalizer: Any,
    pre_tokenizer: Any,
) -> Tokenizer:
    """BPE over characters, where bytes stand for those that it has not learned."""
    learned = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    learned.normalizer = normalizers.Replace(" ", "▁")
    learned.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        limit_alphabet=90,  # so that some characters are bytes
        show_progress=False,
        special_tokens=[*special, *bytes_],
    )
    learned.train_from_iterator(texts, trainer)
    made = json.loads(learned.to_str())
    kept = {*special}
    made["added_tokens"] = [one for one in made["added_tokens"] if one["content"] in kept]
    tokenizer = Tokenizer.from_str(json.dumps(made))
    if normalizer is None:
        tokenizer.normalizer = normalizers.Sequence([])
    else:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Sequence([])
    return tokenizer


def _begins_with(tokenizer: Tokenizer, token: str) -> Tokenizer:
    tokenizer.post_processor = _template(tokenizer, token)
    return tokenizer


def _template(tokenizer: Tokenizer, token: str) -> Any:
    return processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token} $B",
        special_tokens=[(token, tokenizer.token_to_id(token))],
    )


class Style:
    """How a family's tokenizer is made, and what its ``tokenizer_config.json`` says."""

    def __init__(self, make: Callable[[Sequence[str]], Tokenizer], **config: Any) -> None:
        self.make = make
        self.config = config

    def write(self, directory: Path, texts: Sequence[str]) -> None:
        """``tokenizer.json`` and ``tokenizer_config.json``."""
        directory.mkdir(parents=True, exist_ok=True)
        self.make(texts).save(str(directory / "tokenizer.json"))
        said = {"clean_up_tokenization_spaces": False, "model_max_length": 100_000} | self.config
        (directory / "tokenizer_config.json").write_text(json.dumps(said))


CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA_3 = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)

STYLES: dict[str, Style] = {
    "llama2": Style(
        sentencepiece_legacy,
        tokenizer_class="LlamaTokenizer",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        add_bos_token=True,
        add_eos_token=False,
        legacy=True,
    ),
    "mistral3": Style(
        lambda texts: sentencepiece(texts, ("[INST]", "[/INST]")),
        tokenizer_class="LlamaTokenizer",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        add_bos_token=True,
        add_eos_token=False,
        legacy=False,
    ),
    "gemma": Style(
        gemma,
        tokenizer_class="GemmaTokenizer",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<pad>",
        add_bos_token=True,
        add_eos_token=False,
    ),
    "llama3": Style(
        lambda texts: byte_level(texts, LLAMA_3, first="<|begin_of_text|>"),
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        model_input_names=["input_ids", "attention_mask"],
    ),
    "llama3-base": Style(
        lambda texts: byte_level(texts, LLAMA_3, first="<|begin_of_text|>"),
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
    ),
    "qwen": Style(
        lambda texts: byte_level(
            texts,
            CHATML,
            pattern=_QWEN,
            plain=("<tool_call>", "</tool_call>"),
        ),
        tokenizer_class="Qwen2Tokenizer",
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        add_bos_token=False,
        add_prefix_space=False,
        errors="replace",
        split_special_tokens=False,
    ),
    "qwen3": Style(
        lambda texts: byte_level(
            texts,
            CHATML,
            pattern=_QWEN,
            plain=(
                "<tool_call>",
                "</tool_call>",
                "<tool_response>",
                "</tool_response>",
                "<think>",
                "</think>",
            ),
        ),
        tokenizer_class="Qwen2Tokenizer",
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        add_bos_token=False,
        add_prefix_space=False,
    ),
    "phi4": Style(
        lambda texts: byte_level(texts, (*CHATML, "<|im_sep|>", "<|dummy_85|>"), stripping=True),
        tokenizer_class="GPT2Tokenizer",
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|dummy_85|>",
        unk_token="<|endoftext|>",
        add_prefix_space=False,
    ),
    "olmo2": Style(
        lambda texts: byte_level(texts, ("<|endoftext|>", "<|pad|>")),
        tokenizer_class="GPT2Tokenizer",
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|pad|>",
        unk_token="<|endoftext|>",
        add_prefix_space=False,
    ),
    "smollm3": Style(
        lambda texts: byte_level(
            texts,
            (*LLAMA_3, "<|im_start|>", "<|im_end|>"),
            plain=("<think>", "</think>", "<tool_call>", "</tool_call>"),
        ),
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        fast=False,
    ),
    "gpt2": Style(
        lambda texts: byte_level(texts, ("<|endoftext|>",), pattern=None, trims=True),
        tokenizer_class="GPT2Tokenizer",
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        add_prefix_space=False,
    ),
}
