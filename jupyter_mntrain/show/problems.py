"""Problems as text, for terminal, notebook and picture."""

from __future__ import annotations

from rich.text import Text

from jupyter_mntrain.model.failure.problem import Problem


def problem_text(
    problem: Problem, *, mark: str = "✕", style: str = "red", before: str = ""
) -> Text:
    """A mark, the place and cause in bold, and the fix.

    Args:
        before: prefix, like ``stalled for 12 s: ``.
    """
    text = Text(f"{mark} ", style=style)
    text.append(f"{before}{problem.headline}", style="bold default")
    return text.append(f" {problem.fix_line}", style="default") if problem.fix else text
