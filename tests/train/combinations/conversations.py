"""Conversations with what real ones have: white space, scripts, tools, thoughts, several turns.

No template's markers stand in them: what becomes of those is another test's.
"""

from __future__ import annotations

from typing import Any

Messages = list[dict[str, Any]]

_PAIRS = (
    ("Who are you?", "Samantha."),
    ("What is 17 times 3?", "51"),
    ("Name a color.", "Blue, like the sea on a clear day."),
    ("Yes or no?", "y"),
    ("Wie heißt die Hauptstadt von Österreich?", "Wien, an der Donau. 🎻 Schöne Grüße!"),
    ("你会说中文吗?", "会一点。你好,世界!"),
    ("Write two lines.", "Roses are red,\nviolets are blue.\n\nThat was all."),
    ("Show me a loop.", "```python\nfor number in range(3):\n    print(number * 2)\n```"),
    ("Continue: one, two,", "three, four, five, six, seven, eight, nine, ten."),
    ("Only dots, please.", "..."),
    ("Tabs?", "a\tb\tc, and a zero-width\u200bspace"),
    ("Why is the sky blue?", "Short waves are scattered more than long ones."),
)
_SPACED = (
    ("Begin with spaces.", "  two spaces come first"),
    ("End with a space.", "there is one after this word "),
    ("Begin with a line.", "\nafter an empty line"),
    ("  spaces around the question  ", "none here"),
)
"""Templates that trim take this white space away, others write it."""

_LONG = (
    "Tell me about the moon.",
    " ".join(
        f"Night {number}: the moon is {number * 4} percent lit, and tide {number} rises."
        for number in range(1, 40)
    ),
)


def plain() -> list[Messages]:
    """One question and answer each, some of several turns, one longer than a sequence."""
    alone = [_turns(pair) for pair in (*_PAIRS, *_SPACED, _LONG)]
    several = [
        _turns(*_PAIRS[first : first + number])
        for first, number in ((0, 2), (2, 3), (4, 2), (6, 4), (8, 3))
    ]
    return alone + several + [_turns(_SPACED[0], _PAIRS[1], _SPACED[1])]


def with_system() -> list[Messages]:
    said = ("Be brief.", "You are a pirate.\nSay so.", "  Answer in German.  ")
    return [
        [{"role": "system", "content": one}, *_turns(*_PAIRS[number : number + 2])]
        for number, one in enumerate(said)
    ]


def told_not_to_think() -> list[Messages]:
    """With the words by which SmolLM 3's template leaves an empty thought before each answer."""
    said = {"role": "system", "content": "Be brief. /no_think"}
    return [[said, *_turns(*_PAIRS[number : number + 2])] for number in (0, 5)]


def with_thoughts() -> list[Messages]:
    """Reasoning in the last answer, and in an earlier one."""
    last = _turns(_PAIRS[1])
    last[-1]["reasoning_content"] = "17 and 17 and 17 make 51."
    earlier = _turns(_PAIRS[0], _PAIRS[2], _PAIRS[11])
    earlier[1]["reasoning_content"] = "I have a name."
    earlier[-1]["reasoning_content"] = "It is about scattering."
    return [last, earlier]


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "A town."}},
            "required": ["place"],
        },
    },
}


def with_tools() -> list[Messages]:
    """A call, what it gives, and an answer from that; alone, after another turn, before one."""
    return [
        _called("Oslo", 4),
        [*_called("Lima", 19), *_turns(_PAIRS[0])],
        [*_turns(_PAIRS[2]), *_called("Kyoto", 11, said="I look at the weather.")],
    ]


def with_several_calls() -> list[Messages]:
    """Two calls in one answer, and one after the other, with thoughts before them."""
    both = [
        {"role": "user", "content": "How warm is it in Rome and Bonn?"},
        {"role": "assistant", "content": "Both.", "tool_calls": [_call("Rome"), _call("Bonn")]},
        {"role": "tool", "content": "21 degrees", "name": "weather"},
        {"role": "tool", "content": "9 degrees", "name": "weather"},
        {"role": "assistant", "content": "21 and 9 degrees."},
    ]
    first, second = _called("Rome", 21, thought="Rome first."), _called("Bonn", 9)
    return [both, [*first[:-1], *second[1:]]]


def _called(place: str, degrees: int, *, said: str = "", thought: str = "") -> Messages:
    called = {"role": "assistant", "content": said, "tool_calls": [_call(place)]}
    if thought:
        called["reasoning_content"] = thought
    return [
        {"role": "user", "content": f"How warm is it in {place}?"},
        called,
        {"role": "tool", "content": f"{degrees} degrees", "name": "weather"},
        {"role": "assistant", "content": f"It is {degrees} degrees in {place}."},
    ]


def _call(place: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "weather", "arguments": {"place": place}}}


def not_learned(conversations: list[Messages]) -> list[Messages]:
    """Every second answer with weight 0, as OpenAI's format has it; the first one is learned."""
    number = 0
    weighed = []
    for messages in conversations:
        said = []
        for one in messages:
            if one["role"] == "assistant":
                said.append(one | {"weight": (number + 1) % 2})
                number += 1
            else:
                said.append(one)
        if any(one.get("weight") for one in said):
            weighed.append(said)
    return weighed


def row(messages: Messages, kind: str) -> dict[str, Any]:
    """As a line of a file: OpenAI's ``messages``, or ShareGPT's ``conversations``."""
    if kind == "messages":
        tools = {"tools": [WEATHER]} if any("tool_calls" in one for one in messages) else {}
        return {"messages": messages} | tools
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    return {
        "conversations": [
            {"from": names[one["role"]], "value": one["content"]}
            | {name: one[name] for name in ("weight",) if name in one}
            for one in messages
        ]
    }


def _turns(*pairs: tuple[str, str]) -> Messages:
    return [
        {"role": role, "content": content}
        for pair in pairs
        for role, content in zip(("user", "assistant"), pair, strict=True)
    ]
