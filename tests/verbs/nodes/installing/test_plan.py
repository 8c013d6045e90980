"""Plans and refusals: from what a machine has to what is done there, without any machine."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.certificates import fingerprint, pem_of
from jupyter_mntrain.verbs.nodes.installing.facts import (
    Facts,
    FoundEnvironment,
    FoundMembership,
    Wanted,
)
from jupyter_mntrain.verbs.nodes.installing.plan import NodeChoices, all_steps
from jupyter_mntrain.verbs.nodes.installing.refusals import refuse, step_failed

NOW_S = 1_800_000_000.0
PACKAGES = {"jupyter-mntrain": "1.2.3", "torch": "2.9.0", "transformers": "5.0.0"}
WHEEL = "own.whl"


@pytest.fixture(scope="module")
def authority() -> Any:
    return Authority.make("lab", now=datetime.fromtimestamp(NOW_S, UTC))


@pytest.fixture
def wanted(authority: Authority) -> Wanted:
    return Wanted(
        python=(3, 11),
        packages=PACKAGES,
        digest="d1",
        cluster="lab",
        authority=fingerprint(authority.certificate),
    )


def facts(**changes: Any) -> Facts:
    bare = Facts(
        python="/usr/bin/python3.11",
        version=(3, 11, 2),
        venv=True,
        system="Linux",
        hostname="wopr",
        is_root=False,
        time_s=NOW_S,
        where="/home/a b/env",
        exists=False,
        free_bytes=10**12,
        used="/home/a b/env/bin/python",
        environment=None,
        free_port=8765,
        memberships=(),
        listening=(),
        jobs=(),
    )
    return msgspec.structs.replace(bare, **changes)


def environment(**changes: Any) -> FoundEnvironment:
    right = FoundEnvironment(
        version=(3, 11, 2),
        packages={**PACKAGES, "torch": "2.9.0+cu128"},
        ours={"archive_info": {"hash": "sha256=d1"}},
        pip=True,
    )
    return msgspec.structs.replace(right, **changes)


def member(authority: Authority, **changes: Any) -> FoundMembership:
    found = FoundMembership(
        state="/s",
        cluster="lab",
        name="wopr",
        port=8765,
        python="/home/a b/env/bin/python",
        node_id="n",
        authority=pem_of(authority.certificate),
    )
    return msgspec.structs.replace(found, **changes)


def titles(found: Facts, wanted: Wanted) -> list[str]:
    return [step.title for step in all_steps(found, wanted, NodeChoices(), WHEEL)]


def words(command: str) -> list[str]:
    split = shlex.split(command)
    return shlex.split(split[-1]) if split[:3] == ["exec", "sh", "-c"] else split


def test_a_bare_machine_gets_everything_and_no_token_stands_in_a_command(wanted: Wanted) -> None:
    steps = all_steps(facts(), wanted, NodeChoices(name="n1", port=9000), WHEEL)
    assert len(steps) == 4
    assert [step.stdin for step in steps] == ["nothing", "wheel", "nothing", "token"]
    venv, copy, pip, join = (words(step.command) for step in steps)
    assert venv == ["/usr/bin/python3.11", "-m", "venv", "/home/a b/env"]
    assert copy[-1] == "/home/a b/packages/own.whl"
    assert "torch==2.9.0" in pip
    assert pip[0] == join[0] == "/home/a b/env/bin/python"
    assert {"join", "--service", "n1", "9000"} <= set(join)


def test_beside_another_users_node_it_listens_on_the_next_port(wanted: Wanted) -> None:
    for choices, port in ((NodeChoices(), "8766"), (NodeChoices(port=9000), "9000")):
        join = all_steps(facts(free_port=8766), wanted, choices, WHEEL)[-1]
        assert join.command.split()[join.command.split().index("--port") + 1] == port
    assert "--port" not in all_steps(facts(), wanted, NodeChoices(), WHEEL)[-1].command


def test_what_is_right_stays(wanted: Wanted, authority: Authority) -> None:
    right = facts(environment=environment(), exists=True)
    assert len(titles(right, wanted)) == 1
    mine = msgspec.structs.replace(right, memberships=(member(authority),))
    (step,) = all_steps(mine, wanted, NodeChoices(), WHEEL)
    assert step.stdin == "nothing"
    assert "--restart" not in words(step.command)


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": {**PACKAGES, "torch": "2.8.0"}},
        {"packages": {"torch": "2.9.0", "transformers": "5.0.0"}},
        {"ours": {"archive_info": {"hashes": {"sha256": "d2"}}}},
    ],
)
def test_what_differs_is_installed_and_the_agent_restarts(
    wanted: Wanted, authority: Authority, changes: dict[str, Any]
) -> None:
    mine = (member(authority),)
    other = facts(environment=environment(**changes), exists=True, memberships=mine)
    steps = all_steps(other, wanted, NodeChoices(), WHEEL)
    assert [step.stdin for step in steps] == ["wheel", "nothing", "nothing"]
    assert "--restart" in words(steps[-1].command)
    running = msgspec.structs.replace(other, jobs=("j-1",))
    with pytest.raises(NodeError) as caught:
        refuse(running, wanted, "wopr", now_s=NOW_S)
    assert caught.value.kind is Kind.JOBS_RUNNING


def test_a_working_copy_of_the_same_version_is_nobody_s_to_replace(wanted: Wanted) -> None:
    editable = {"dir_info": {"editable": True}}
    right = facts(environment=environment(ours=editable), exists=True, jobs=("j-1",))
    refuse(right, wanted, "wopr", now_s=NOW_S)
    assert len(titles(right, wanted)) == 1
    old = environment(ours=editable, packages={**PACKAGES, "jupyter-mntrain": "1.0"})
    with pytest.raises(NodeError) as caught:
        refuse(facts(environment=old, exists=True), wanted, "wopr", now_s=NOW_S)
    assert caught.value.kind is Kind.OTHER_PACKAGES


def test_half_an_environment_is_made_again_but_never_one_that_was_given(wanted: Wanted) -> None:
    half = facts(environment=environment(pip=False, packages={}), exists=True)
    assert "--clear" in words(all_steps(half, wanted, NodeChoices(), WHEEL)[0].command)
    given = msgspec.structs.replace(wanted, is_given=True)
    with pytest.raises(NodeError) as caught:
        refuse(half, given, "wopr", now_s=NOW_S)
    assert caught.value.kind is Kind.OTHER_PACKAGES
    has_pip = facts(environment=environment(packages={}), exists=True)
    assert "venv" not in words(all_steps(has_pip, given, NodeChoices(), WHEEL)[0].command)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"system": "Darwin"}, Kind.REFUSED),
        ({"time_s": NOW_S + 3600}, Kind.CLOCK_OFF),
        ({"time_s": NOW_S - 3600}, Kind.CLOCK_OFF),
        ({"version": (3, 9, 2)}, Kind.NO_PYTHON),
        ({"version": (3, 13, 0)}, Kind.NO_PYTHON),
        ({"environment": environment(version=(3, 12, 1))}, Kind.NO_PYTHON),
        ({"venv": False}, Kind.NO_VENV),
        ({"free_bytes": 10**9}, Kind.DISK_FULL),
    ],
)
def test_each_refusal_comes_before_anything_is_changed(
    wanted: Wanted, changes: dict[str, Any], kind: Kind
) -> None:
    with pytest.raises(NodeError) as caught:
        refuse(facts(**changes), wanted, "ann@wopr", now_s=NOW_S)
    assert (caught.value.kind, caught.value.node) == (kind, "ann@wopr")
    assert caught.value.fix


def test_another_cluster_s_node_is_refused_by_its_authority_not_by_its_name(
    wanted: Wanted, authority: Authority
) -> None:
    right = facts(environment=environment(), exists=True)
    mine = msgspec.structs.replace(right, memberships=(member(authority),))
    refuse(mine, wanted, "wopr", now_s=NOW_S)
    theirs = msgspec.structs.replace(wanted, authority=b"other")
    for cluster, kind in (("lab", Kind.OTHER_AUTHORITY), ("home", Kind.WRONG_CLUSTER)):
        found = msgspec.structs.replace(right, memberships=(member(authority, cluster=cluster),))
        with pytest.raises(NodeError) as caught:
            refuse(found, theirs, "wopr", now_s=NOW_S)
        assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", Kind.DISK_FULL),
        ("ERROR: No matching distribution found for torch==2.9.0", Kind.NO_DOWNLOAD),
        ("Error: ensurepip is not available", Kind.NO_VENV),
        ("sh: 1: cannot create /x: Permission denied", Kind.NO_PERMISSION),
        ("", Kind.NOT_INSTALLED),
    ],
)
def test_a_failed_command_is_explained(message: str, kind: Kind) -> None:
    error = step_failed("installing packages", message, "wopr")
    assert (error.kind, error.node) == (kind, "wopr")
    assert error.fix
