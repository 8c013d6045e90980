"""Metrics: the formula of every derived number."""

from __future__ import annotations

from jupyter_mntrain.telemetry import formulas


def page() -> str:
    return "\n".join(
        [
            "# Metrics and their formulas",
            "",
            (
                "Every number that is derived is derived here, whatever shows it. The "
                "[glossary](../glossary.md#numbers) says in words what each of them means."
            ),
            "",
            "```{eval-rst}",
            f".. automodule:: {formulas.__name__}",
            "   :members:",
            "```",
            "",
        ]
    )
