"""Light verbs: which of our modules a command imports that only lists or helps. Not timed:
``benchmarks/import_time.py`` is.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from importlib import metadata

import pytest

ROOM = "jupyter_mntrain"
PROGRAM = """
import contextlib, io, json, sys
from jupyter_mntrain.cli import main
class Words:
    words = ["launch", "--member"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    if sys.argv[1] == "completion":  # what a shell asks
        from jupyter_mntrain.verbs.shell_completion import Finder, answer
        Finder.__call__ = lambda *_: Finder().collect_completions((), Words(), "")
        with contextlib.suppress(AssertionError):
            answer()
    else:
        main()
if sys.argv[1] == "status":
    import jupyter_mntrain.cluster.job  # there is no cluster here that could have one
print(json.dumps(sorted(sys.modules)))
"""
OF_HELP = {"cli", "command_line", "model.errors", "model.failure", "model.text", "verbs.command"}
OF_HELP |= {"model.lazy", "verbs.table"}
OF_LISTS = OF_HELP | {
    "cluster.admission",
    "cluster.agents",
    "cluster.cluster",
    "cluster.default",
    "cluster.discovery",
    "cluster.handle.discovery",
    "cluster.handle.job_search",
    "cluster.handle.membership",
    "cluster.loop",
    "cluster.session",
    "cluster.view",
    "http",
    "launch.checkpoints.places",
    "launch.progress",
    "launch.retry",
    "launch.torchrun",
    "metrics.node_history",
    "metrics.downsampled.samples",
    "model",
    "plan.lookup",
    "show",
    "sources.allocation_book",
    "sources.registry",
    "telemetry.interfaces",
    "telemetry.kernel_files",
    "trust",
    "verbs.verb",
    "verbs.completion",
    "verbs.known_names",
    "verbs.launching.allocations.remembered",
    "verbs.run",
}
OF_STATUS = OF_LISTS | {
    "cluster.history",
    "cluster.job",
    "cluster.chat",
    "cluster.launch.record_changes",
    "launch.files",
    "launch.project.tree",
    "metrics",
    "plan.link_capacities",
    "plan.networks.outdated",
    "plan.spec_check",
    "sources.awaited_launch",
    "telemetry.formulas",
    "verbs.controlling.ending",
    "verbs.launching.allocations",
    "verbs.watching.following",
    "verbs.watching.status",
}
MAY_IMPORT = {
    "--version": OF_HELP,
    "--help": OF_HELP,
    "completion": OF_HELP
    | {"model.environment", "model.whereabouts", "cluster.default", "verbs.completion"}
    | {"verbs.known_names", "verbs.shell_completion"},
    "jobs": OF_LISTS | {"verbs.watching.jobs"},
    "nodes": OF_LISTS | {"plan.agent_hosts", "plan.software.versions", "verbs.nodes.nodes"},
    "status": OF_STATUS,
}


@functools.cache
def imported(word: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, word]
    return list(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def is_of(name: str, modules: set[str]) -> bool:
    """Whether a module is one of them, below one, or only a package above one."""
    return any(
        name == one or name.startswith(f"{one}.") or one.startswith(f"{name}.") for one in modules
    )


@pytest.mark.slow
@pytest.mark.parametrize("word", MAY_IMPORT)
def test_a_light_verb_imports_no_more_of_ours_than_it_needs(word: str) -> None:
    ours = [one.partition(".")[2] for one in imported(word) if one.startswith(f"{ROOM}.")]
    too_many = [one for one in ours if not is_of(one, MAY_IMPORT[word])]
    assert not too_many, f"mntrain {word} imports them, too: import them where they are needed"


@pytest.mark.parametrize("word", ["jobs", "nodes", "status"])
def test_it_imports_nothing_large_of_others_that_it_does_not_use(word: str) -> None:
    unused = {"click", "pygments", "filelock", "importlib.metadata", "numpy", "transformers"}
    assert not unused & set(imported(word))


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_help_needs_no_other_package(word: str) -> None:
    required = metadata.requires("jupyter-mntrain") or []
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0].replace("-", "_") for one in required}
    assert "msgspec" in names
    assert not names & set(imported(word))
