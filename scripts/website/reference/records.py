"""Records: the routes of the Jupyter server's part, and what they exchange, by the JSON schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_mntrain.server import app, messages
from scripts.schema import definitions
from scripts.website.reference.tables import cell, code, table

_FIELD = re.compile(r"^    (\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)
"""A field below ``Args:`` in a docstring."""


def page() -> str:
    told = messages.__doc__ or ""
    _, _, rest = told.partition("\n\n")
    routes, _, after = rest.rpartition("======\n")
    lines = [
        "# REST and WebSocket",
        "",
        (
            f"The routes of the Jupyter server's part, below `{{base}}/{app.PREFIX}`: the page "
            "uses them, and so can you, with Jupyter's own token. [In Jupyter](../jupyter.md) says "
            "what they do and who may call them."
        ),
        "",
        "```{eval-rst}",
        f"{routes}======",
        "```",
        "",
        _text(after),
        "",
        "## Records",
        "",
        "As JSON, in alphabetical order.",
        "",
    ]
    for name, schema in sorted(definitions().items()):
        lines += [f"### {name}", "", *_record(schema)]
    return "\n".join(lines)


def _record(schema: Mapping[str, Any]) -> Iterator[str]:
    description, _, fields = schema.get("description", "").partition("Args:")
    if description.strip():
        yield from (_text(description), "")
    if "enum" in schema:
        yield from ("One of " + ", ".join(f"`{one}`" for one in schema["enum"]) + ".", "")
    if properties := schema.get("properties"):
        meanings = dict(_FIELD.findall(fields))
        required = set(schema.get("required", ()))
        rows = [
            (
                code(name) + ("" if name in required else " (optional)"),
                _type(one),
                _text(cell(one.get("description") or meanings.get(name, ""))),
            )
            for name, one in properties.items()
        ]
        yield from table(("field", "type", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    """A type as people write it; a record is a link to its heading."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if one_of := schema.get("anyOf"):
        return " or ".join(_type(one) for one in one_of)
    if "enum" in schema or "const" in schema:
        return ", ".join(code(str(one)) for one in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            inner = schema.get("items") or {}
            parts = schema.get("prefixItems", [])
            inside = _type(inner) if isinstance(inner, dict) and inner else ""
            return "list of " + (inside or ", ".join(map(_type, parts)) or "anything")
        case "object":
            values = schema.get("additionalProperties")
            return "object" + (f" of {_type(values)}" if isinstance(values, dict) else "")
        case list(several):
            return " or ".join(several)
        case None:
            return "anything"
        case single:
            return str(single)


def _text(text: str) -> str:
    plain = re.sub(r":\w+:`([^`]+)`", r"`\1`", text.replace("``", "`"))
    return plain.replace("$", "\\$").strip()
