"""Acceptance notebook: a report that opens in Jupyter with its outputs, and can be run again."""

from __future__ import annotations

import io
from typing import Any

import nbformat
from rich.console import Console

from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptanceReport
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.show.acceptance.acceptance_page import acceptance_body
from jupyter_mntrain.show.acceptance.acceptance_table import acceptance_table, heading

COLUMNS = 80

_READ = """\
from pathlib import Path

import msgspec
from IPython.display import HTML

from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptanceReport
from jupyter_mntrain.show.acceptance.acceptance_page import acceptance_body

report = msgspec.json.decode(Path({name!r}).read_bytes(), type=AcceptanceReport)
HTML(acceptance_body(report))"""

_FIGURES = """\
{one.key: (one.judgment, one.value, one.limit) for one in report.criteria}"""

_AGAIN = """\
To accept the cluster again:

```
%load_ext jupyter_mntrain
%mntrain accept
```
"""


def acceptance_notebook(report: AcceptanceReport, json_name: str) -> str:
    """Return the notebook as text.

    Args:
        json_name: of the report's JSON file, next to it.
    """
    plain = plain_acceptance(report)
    shown = {"text/html": acceptance_body(report), "text/plain": plain}
    figures = {one.key: (one.judgment, one.value, one.limit) for one in report.criteria}
    made: Any = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(
                f"# Acceptance of cluster {shown_name(report.cluster)}\n\n{heading(report)}"
            ),
            _code(_READ.format(name=json_name), 1, shown),
            _code(_FIGURES, 2, {"text/plain": repr(figures)}),
            nbformat.v4.new_markdown_cell(_AGAIN),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.validate(made)
    return str(nbformat.writes(made))


def plain_acceptance(report: AcceptanceReport) -> str:
    """Return the report as text, 80 columns wide."""
    console = Console(file=io.StringIO(), width=COLUMNS, highlight=False, markup=False, emoji=False)
    console.print(acceptance_table(report))
    assert isinstance(console.file, io.StringIO)  # noqa: S101 - given above
    return console.file.getvalue()


def _code(source: str, number: int, data: dict[str, str]) -> Any:
    output = nbformat.v4.new_output("execute_result", data=data, execution_count=number)
    return nbformat.v4.new_code_cell(source, execution_count=number, outputs=[output])
