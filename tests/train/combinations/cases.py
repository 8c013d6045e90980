"""The combinations: each a template, a tokenizer and a model of the family that it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.train.combinations import conversations as said
from tests.train.combinations.conversations import Messages
from tests.train.combinations.reference import Answers

TEMPLATES = Path(__file__).parent / "templates"

ANSWERS: dict[str, Answers] = {
    "llama3": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "llama3_1": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "llama3_2": Answers(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
    "qwen2_5": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "qwen3": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "gemma2": Answers(r"<start_of_turn>model\n", r"<end_of_turn>"),
    "gemma3": Answers(r"<start_of_turn>model\n", r"<end_of_turn>"),
    "mistral_v1": Answers(r" \[/INST\]", r"</s>|<\|endoftext\|>"),
    "mistral_v2": Answers(r" \[/INST\]", r"</s>|<\|endoftext\|>"),
    "phi4": Answers(r"<\|im_start\|>assistant<\|im_sep\|>", r"<\|im_end\|>"),
    "olmo2": Answers(r"<\|assistant\|>\n", r"<\|endoftext\|>"),
    "smollm3": Answers(r"<\|im_start\|>assistant\n(<think>\n\n</think>\n)?", r"<\|im_end\|>"),
    "chatml": Answers(r"<\|im_start\|>assistant\n", r"<\|im_end\|>"),
    "alpaca": Answers(r"### Response:\n", r"</s>|<\|endoftext\|>|<eos>|<\|im_end\|>|<\|eot_id\|>"),
}
"""By template: what stands before and at the end of each answer."""

SYSTEM = {*ANSWERS} - {"gemma2", "mistral_v1", "mistral_v2"}
"""Templates that take a system message; the others refuse it."""

TOOLS = {"llama3_1", "llama3_2", "qwen2_5", "qwen3"}
THOUGHTS = {"qwen3"}


@dataclass(frozen=True)
class Pair:
    """A template with a tokenizer.

    Attributes:
        template: a file in ``templates``.
        tokenizer: a style of ``small_tokenizers``.
        family: the model's ``model_type``.
        packing, too_long: of the recipe.
        length: tokens of a sequence.
        own: whether the model directory has the template, or the recipe names it.
        added: tokens that the recipe adds.
        rows: ``messages`` or ``conversations``.
        kinds: of conversations beside plain ones.
    """

    template: str
    tokenizer: str
    family: str
    packing: str = "best-fit"
    too_long: str = "cut"
    length: int = 192
    own: bool = True
    added: tuple[str, ...] = ()
    rows: str = "messages"
    kinds: tuple[Callable[[], list[Messages]], ...] = field(default=(said.with_system,))

    @property
    def name(self) -> str:
        return f"{self.template} {self.tokenizer}"

    def conversations(self) -> list[Messages]:
        """All that the template takes."""
        return said.plain() + [one for kind in self.kinds for one in kind()]


_CHATML = ("<|im_start|>", "<|im_end|>")
_NONE: tuple[Callable[[], list[Messages]], ...] = ()
_ALL = (said.with_system, said.with_tools)

PAIRS: tuple[Pair, ...] = (
    Pair("llama3", "llama3", "llama"),
    Pair("llama3_1", "llama3", "llama", length=640, kinds=_ALL),
    Pair("llama3_2", "llama3", "llama", length=640, kinds=_ALL, too_long="truncate"),
    Pair("qwen2_5", "qwen", "qwen2", length=640, kinds=_ALL, packing="none"),
    Pair("qwen3", "qwen3", "qwen3", length=640, kinds=(*_ALL, said.with_thoughts)),
    Pair("gemma2", "gemma", "gemma2", kinds=_NONE, rows="conversations"),
    Pair("gemma3", "gemma", "gemma3_text", too_long="drop"),
    Pair("mistral_v1", "llama2", "mistral", kinds=_NONE, packing="none", own=False),
    Pair("mistral_v2", "mistral3", "mistral", kinds=_NONE, too_long="truncate"),
    Pair("phi4", "phi4", "phi3", rows="conversations"),
    Pair("olmo2", "olmo2", "olmo2"),
    Pair("smollm3", "smollm3", "smollm3", length=768),
    Pair("chatml", "qwen", "qwen2", own=False, packing="wrapped"),
    Pair("chatml", "llama3-base", "llama", added=_CHATML, own=False),
    Pair("chatml", "llama2", "mistral", added=_CHATML, own=False, rows="conversations"),
    Pair("alpaca", "llama2", "llama", own=False, packing="wrapped"),
    Pair("alpaca", "gpt2", "llama", too_long="truncate"),
    Pair("alpaca", "gemma", "gemma2", own=False, too_long="drop"),
    Pair("llama3", "gpt2", "llama", own=False, length=256),
    Pair("gemma3", "mistral3", "mistral", own=False, length=256),
)

MASKS = ("all", "answers", "weighted")
"""All tokens; the answers alone; and of them, those whose weight is not 0."""
