"""Nodes of a scheduler in the panel: its options, why a launch waits, and its cancel."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.notebook.panel.widgets import blocked
from jupyter_mntrain.sources.allocation_book import AllocationBook
from jupyter_mntrain.sources.registry import options_of, sources
from tests.notebook.panel.opened import until
from tests.standin.cluster import node
from tests.standin.slurm_tools import SlurmTools
from tests.wording import says


@pytest.mark.wording  # it waits for words
def test_a_source_shows_the_options_that_it_declares(open_one) -> None:
    page = open_one()
    part, bar = page.view.source, page.view.launch_bar
    page.click(bar.toggle)
    for source in sources():
        part.choice.value = source
        names = {"nodes", "gpus", "time", "idle", *(one.name for one in options_of(source))}
        until(lambda names=names: set(part.widgets) == names)
        until(lambda: page.view.nodes.root.layout.display == "none")
        until(lambda source=source: f"--on {source}" in bar.commands.value)
    part.choice.value = "slurm"
    until(lambda: "partition" in part.widgets)
    part.widgets["nodes"].value = "no"
    until(lambda: blocked(bar.launch))
    until(lambda: says("no", part.problems["nodes"].value))
    part.widgets["nodes"].value = "2"
    part.widgets["sbatch"].value = "--exclusive\n--mail-type=END"
    until(lambda: "--nodes 2 --sbatch=--exclusive --sbatch=--mail-type=END" in bar.commands.value)
    until(lambda: "#SBATCH --exclusive" in bar.commands.value)
    assert "--member" not in bar.commands.value
    until(lambda: not blocked(bar.launch))
    part.choice.value = ""
    until(lambda: page.view.nodes.root.layout.display is None)
    until(lambda: "--on" not in bar.commands.value)


@pytest.mark.wording  # it waits for words
def test_a_launch_waits_and_is_canceled(
    open_one, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmTools(tmp_path / "slurm", monkeypatch)
    page = open_one(node("slurm-0", 1), node("slurm-1", 2))
    page.cluster.become()  # no node has come
    bar = page.view.launch_bar
    page.view.source.choice.value = "slurm"
    until(lambda: "nodes" in page.view.source.widgets)
    page.view.source.widgets["nodes"].value = "2"
    until(lambda: says("2 nodes", page.why))
    page.click(bar.launch)
    until(lambda: "(Resources)" in page.why and says("expected to start in 1", page.why))
    until(lambda: bar.cancel.layout.display is None)
    page.click(bar.cancel)
    until(lambda: says("canceled", page.why))
    until(lambda: not blocked(bar.launch))
    assert slurm.state == "CANCELLED"
    until(lambda: bar.cancel.layout.display == "none")
    assert AllocationBook().of_last_launch() is None
    assert page.jobs == []


@pytest.mark.wording  # it waits for words
def test_a_job_starts_on_nodes_that_come(
    open_one, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmTools(tmp_path / "slurm", monkeypatch)
    page = open_one(node("slurm-0", 1), node("slurm-1", 2))
    page.view.source.choice.value = "slurm"
    until(lambda: "nodes" in page.view.source.widgets)
    page.view.source.widgets["nodes"].value = "2"
    until(lambda: says("2 nodes", page.why))
    slurm.state = "RUNNING"
    page.click(page.view.launch_bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    assert "--on slurm --nodes 2" in page.kept[0]["text/plain"]
    spec = page.cluster.launches[-1]
    assert [one.node for one in spec.participants] == ["slurm-0", "slurm-1"]
