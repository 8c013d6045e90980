"""Unjoined: a service whose node is in no cluster."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.model.failure.kinds import Kind
from tests.cluster.admission.conftest import kinds, up
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


def test_a_service_without_a_cluster_says_so_and_runs_once_it_has_joined(agent) -> None:
    """Its state directory was emptied: elsewhere it must not look like a machine without agent."""
    service = agent("run", "--wait-to-join")
    service.says("is not a member of a cluster yet")
    with Cluster("home", discovery=StaticDiscovery([service.where])) as cluster:
        token = cluster.membership.invite()
        until(lambda: kinds(cluster) == [Kind.NOT_JOINED], "it to say that it has not joined")
        joining = agent("join", token, "--no-run", again=service)
        until(lambda: up(cluster) == ["n1"], "the node to be up")
        assert joining.process.wait(PATIENCE_S) == 0
        assert service.process.poll() is None
    assert service.end() == 0


def test_a_service_without_a_cluster_ends_when_it_is_told_to(agent) -> None:
    service = agent("run", "--wait-to-join")
    service.says("is not a member of a cluster yet")
    assert service.end() == 0
