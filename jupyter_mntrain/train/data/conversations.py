"""Conversations: reads them from rows of every common shape, and splits those that are too long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from jupyter_mntrain.recipe.sections import ANSWERS, Role
from jupyter_mntrain.train.data.records import RowError

# Conversations: found in rows of every common shape, and spelled as chat templates take them.


Message = Mapping[str, Any]
"""``role`` and ``content``, as chat templates take them; maybe ``tool_calls`` and reasoning."""

Tool = Mapping[str, Any]
"""A function that the assistant may call, as JSON schema."""

REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names of what the assistant thought: data sets and templates differ."""

Roles = Mapping[str, Role]
"""Who speaks in turns of a name, in addition to the names that are known."""

_ROLES: dict[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": ANSWERS,
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "human": "user",
    "gpt": ANSWERS,
    "bing": ANSWERS,
    "bard": ANSWERS,
    "chatgpt": ANSWERS,
    "claude": ANSWERS,
    "model": ANSWERS,
    "bot": ANSWERS,
    "chatbot": ANSWERS,
    "ai": ANSWERS,
    "tool_response": "tool",
}
"""Role names of OpenAI, ShareGPT and others, and the template's."""

_ROLES_FIX = f"name it as one of {', '.join(_ROLES)}"

WEIGHT = "weight"
"""0 in an answer that is only read, as OpenAI's data has it."""

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def messages_of(
    fields: Mapping[str, Any], where: str, roles: Roles = MappingProxyType({})
) -> list[Message]:
    """Read a row's conversation: ``messages``, ``conversations``, or a prompt and its completion.

    Args:
        roles: from ``data.roles``; they go before what is known.

    Raises:
        RowError: it has no conversation, one without an answer, or one that is more than text.
    """
    messages = [_message(turn, where, roles) for turn in _turns(fields, where)]
    system = fields.get("system")
    has_own = bool(messages) and messages[0]["role"] in {"system", "developer"}
    if isinstance(system, str) and system.strip() and not has_own:
        messages.insert(0, {"role": "system", "content": system})
    answers = [message for message in messages if message["role"] == ANSWERS]
    if not answers:
        raise RowError(where, "has no assistant turn", fix="remove that conversation")
    if not any(_says_something(message) for message in answers):
        raise RowError(where, "the assistant says nothing", fix="remove that conversation")
    return messages


def _says_something(message: Message) -> bool:
    more = (message.get(name) for name in ("tool_calls", *REASONING))
    return bool(message["content"].strip()) or any(more)


def tools_of(fields: Mapping[str, Any], where: str) -> list[Tool] | None:
    """Return the functions that a row's conversation may call; ``None`` if it names none.

    Raises:
        RowError: they are not functions.
    """
    tools = _from_json(fields.get("tools") or fields.get("functions"))
    if not tools:
        return None
    if not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        fix = "write a list of JSON schemas, or remove that field"
        raise RowError(where, "its tools are not a list of objects", fix=fix)
    return [
        tool if "function" in tool else {"type": "function", "function": tool} for tool in tools
    ]


def _turns(fields: Mapping[str, Any], where: str) -> Sequence[Any]:
    for name in ("messages", "conversations", "conversation"):
        turns = _from_json(fields.get(name))
        if isinstance(turns, list):
            return turns
    for asks, answer in (("prompt", "completion"), ("instruction", "output")):
        asked, said = fields.get(asks), fields.get(answer)
        if isinstance(asked, list) and isinstance(said, list):
            return [*asked, *said]
        if isinstance(asked, str) and isinstance(said, str):
            more = fields.get("input") or ""
            question = f"{asked}\n\n{more}" if more else asked
            return [{"role": "user", "content": question}, {"role": ANSWERS, "content": said}]
    if {"chosen", "rejected"} <= fields.keys():
        fix = "leave out the rejected answer: give messages, or prompt and completion"
        raise RowError(where, "two answers to choose from, but only one can be trained on", fix=fix)
    raise RowError(
        where,
        "not a conversation",
        detail=f"; its fields are {', '.join(map(str, fields)) or 'none'}",
        fix="give messages (role, content), conversations (from, value), or prompt and completion",
    )


def _message(turn: Any, where: str, roles: Roles) -> Message:
    role = _role(turn, where, roles)
    content = turn.get("content")
    content = turn.get("value") if content is None else content
    more: dict[str, Any] = {}
    if calls := _tool_calls(turn, where):
        more["tool_calls"] = calls
    thought = next((turn[name] for name in REASONING if turn.get(name)), None)
    if thought is not None:
        if not isinstance(thought, str):
            fix = "write it as text, or remove that field"
            raise RowError(where, "its reasoning is not text", fix=fix)
        # Templates call it differently, and ignore names that they do not know.
        more |= dict.fromkeys(REASONING, thought)
    if content is None and more:
        content = ""
    if isinstance(content, list):
        content = _joined(content, where)
    if not isinstance(content, str):
        has_none = content is None
        what = "a turn without content" if has_none else f"content that is {_type_of(content)}"
        fix = "give its text as content (or value)" if has_none else "write it as text, in quotes"
        raise RowError(where, what, detail=_shown(turn), fix=fix)
    more |= {name: turn[name] for name in ("name", "tool_call_id") if turn.get(name)}
    if role == ANSWERS:
        more |= _weight(turn, where)
    return {"role": role, "content": content, **more}


def _role(turn: Any, where: str, roles: Roles) -> str:
    role = (turn.get("role") or turn.get("from")) if isinstance(turn, dict) else None
    if not isinstance(role, str):
        raise RowError(where, "a turn without a role", detail=_shown(turn), fix=_ROLES_FIX)
    known = roles.get(role) or _ROLES.get(role.lower())
    if known is None:
        name = json.dumps(role[:40], ensure_ascii=False)
        fix = f"say who that is: data.roles = {{user = [{name}]}} (or assistant, system, tool)"
        raise RowError(where, f"a turn of the role {role[:40]!r}", fix=fix)
    return known


def _weight(turn: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return an answer's ``weight`` field; a weight of 1 is left out."""
    weight = turn.get(WEIGHT)
    if weight not in (None, 0, 1):
        raise RowError(where, "an answer with a weight other than 0 and 1", fix="use 0 or 1")
    return {WEIGHT: 0} if weight == 0 else {}


def _shown(turn: Any) -> str:
    return f" in {str(turn)[:80]}"


def _type_of(value: Any) -> str:
    """Return JSON's name for the type of a value."""
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "an object"


def _joined(parts: Sequence[Any], where: str) -> str:
    """Join the text of content that is a list of parts."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        kind = part.get("type") or "text" if isinstance(part, dict) else "text"
        if kind not in _TEXT_PARTS or not isinstance(text, str):
            raise RowError(
                where,
                f"a message with a part of type {str(kind)[:40]}",
                fix="the trainer learns from text alone: remove that part or that conversation",
            )
        texts.append(text)
    return "".join(texts)


def _tool_calls(turn: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the assistant's tool calls in OpenAI's form, with the arguments as an object."""
    calls = _from_json(turn.get("tool_calls"))
    if not calls:
        called = _from_json(turn.get("function_call"))  # OpenAI's older form, of one call
        calls = [called] if called else []
    return (
        [_tool_call(call, where) for call in calls]
        if isinstance(calls, list)
        else [_tool_call(calls, where)]
    )


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    named = function.get("name") if isinstance(function, dict) else None
    arguments = _from_json(function.get("arguments") or {}) if isinstance(function, dict) else None
    if not isinstance(named, str) or not isinstance(arguments, dict):
        raise RowError(
            where,
            "a tool call without a name, or with arguments that are not a JSON object",
            fix='write {"type": "function", "function": {"name": "…", "arguments": {…}}}',
        )
    more = {name: call[name] for name in ("id",) if call.get(name)}
    return {"type": "function", **more, "function": {"name": named, "arguments": arguments}}


def _from_json(value: Any) -> Any:
    """Decode a string of JSON, as tables store lists of unlike objects as text."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


# Splitting: makes several conversations of one that is longer than a sequence. Pure.


_FIRST = frozenset({"system", "developer"})


def split_turns(
    messages: Sequence[Message], fits: Callable[[Sequence[Message]], bool]
) -> list[Sequence[Message]]:
    """Split before questions into as few conversations as fit, each with the system messages.

    A question stays with its answers, even if they do not fit together. What has no answer is left
    out.
    """
    system = list(takewhile(lambda one: one["role"] in _FIRST, messages))
    found: list[Sequence[Message]] = []
    current = system
    for exchange in _exchanges(messages[len(system) :]):
        if len(current) > len(system) and not fits([*current, *exchange]):
            found.append(current)
            current = system
        current = [*current, *exchange]
    found.append(current)
    return [one for one in found if _has_answer(one)]


def _exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """Split a conversation into questions, each with everything up to the next one."""
    exchanges: list[list[Message]] = []
    for message in messages:
        if not exchanges or (message["role"] == "user" and _has_answer(exchanges[-1])):
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges


def _has_answer(messages: Sequence[Message]) -> bool:
    return any(message["role"] == ANSWERS for message in messages)


# Lost parts: refuses conversations of which the chat template would leave something out.


Render = Callable[[Sequence[Message], Sequence[Tool] | None], str]

_MARK = "mntrain "
_BY_CHANCE_CHARACTERS = 24
"""Shorter content may also be a part of something else."""


def refuse_lost(
    render: Render, text: str, messages: Sequence[Message], tools: Sequence[Tool] | None, where: str
) -> None:
    """Check that the text has the conversation's tools, tool calls, reasoning and other roles.

    Of reasoning, that of some answer is enough: templates leave out that of earlier answers by
    design, as the model does not see it when it gives the next one.

    Args:
        text: the conversation as rendered.

    Raises:
        RowError: the text would be the same without them.
    """

    def is_lost(messages: Sequence[Message], tools: Sequence[Tool] | None) -> bool:
        try:
            return render(messages, tools) == text
        except RowError:
            return False

    if not text.strip():
        raise _lost("anything", where)
    if tools and is_lost(messages, None):
        raise _lost("tools", where)
    for what, others in _altered(messages, text):
        if is_lost(others, tools):
            raise _lost(what, where)


def _altered(messages: Sequence[Message], text: str) -> Iterator[tuple[str, Sequence[Message]]]:
    """Yield altered conversations whose text must differ, and what it would lack otherwise."""
    if any(REASONING[0] in one for one in messages):
        yield "reasoning", [_without(one, *REASONING) for one in messages]
    for place, message in enumerate(messages):
        before, after = messages[:place], messages[place + 1 :]
        if "tool_calls" in message:
            yield "tool_calls", [*before, _without(message, "tool_calls"), *after]
        role, content = message["role"], message["content"].strip()
        if not content or role in {"user", ANSWERS}:
            continue
        if len(content) < _BY_CHANCE_CHARACTERS or content not in text:
            other = {**message, "content": _MARK + content}
            yield f"messages of role {role}", [*before, other, *after]


def _without(message: Message, *names: str) -> Message:
    return {name: value for name, value in message.items() if name not in names}


def _lost(what: str, where: str) -> RowError:
    return RowError(
        where,
        f"the chat template does not write {what}",
        fix="set data.chat_template to one that does, or remove them from the data",
    )
