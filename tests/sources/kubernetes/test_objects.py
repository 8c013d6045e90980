"""Objects: valid by the projects' own strict schemas, and what is in them is what was asked."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from jupyter_mntrain.sources.kubernetes.objects import (
    network_policy,
    rendered,
    secret,
    workload,
)
from jupyter_mntrain.sources.kubernetes.resources import asked
from tests.sources.kubernetes.requests import COMMAND, EVERYTHING, request
from tests.sources.kubernetes.schemas import InvalidObjectError, validate

JOBSET = {"kind": "jobset"}
TRAINJOB = {"kind": "trainjob", "runtime": "torch-distributed"}

CASES = {
    "least": {},
    "least TrainJob": TRAINJOB,
    "everything": EVERYTHING,
    "everything TrainJob": EVERYTHING | TRAINJOB,
    "near": {"local-queue": "a", "near": "rack", "pod_priority": "batch"},
}


def made(**options: Any) -> dict[str, Any]:
    asks = request(**options)
    return workload(asks, COMMAND, "llama-7f3a", asked(asks, None))


def pod_of(built: dict[str, Any]) -> dict[str, Any]:
    (replicated,) = built["spec"]["replicatedJobs"]
    pod: dict[str, Any] = replicated["template"]["spec"]["template"]
    return pod


@pytest.mark.parametrize("name", list(CASES))
def test_what_is_made_is_valid(name: str) -> None:
    validate(made(**CASES[name], time_s=3600.0))


def test_the_secret_and_the_network_policy_are_valid_and_go_with_the_workload() -> None:
    for options in (JOBSET, TRAINJOB):
        asks, built = request(**options, namespace="ml"), made(**options, namespace="ml")
        for one in (
            secret(asks, COMMAND.secrets, "llama-7f3a", "uid-1"),
            network_policy(asks, "llama-7f3a", "uid-1"),
        ):
            validate(one)
            (owner,) = one["metadata"]["ownerReferences"]
            assert (owner["apiVersion"], owner["kind"], owner["name"]) == (
                *(built[key] for key in ("apiVersion", "kind")),
                built["metadata"]["name"],
            )
            assert one["metadata"]["namespace"] == "ml"


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all fields of objects whose fields are the schema's, not a person's."""
    free = ("labels", "annotations", "nodeSelector", "limits", "stringData", "matchLabels")
    found = []
    if isinstance(value, dict):
        for key, one in value.items():
            found.append((*path, key))
            if key not in free:
                found += paths_of(one, (*path, key))
    if isinstance(value, list):
        for index, one in enumerate(value):
            found += paths_of(one, (*path, index))
    return found


@pytest.mark.parametrize("kind", [JOBSET, TRAINJOB], ids=["JobSet", "TrainJob"])
def test_a_misspelled_field_is_refused_at_any_depth(kind: dict[str, str]) -> None:
    built = made(**EVERYTHING | kind)
    paths = [path for path in paths_of(built) if path != ("kind",)]
    assert max(len([one for one in path if isinstance(one, str)]) for path in paths) > 8
    for path in paths:
        wrong = copy.deepcopy(built)
        parent: Any = wrong
        for key in path[:-1]:
            parent = parent[key]
        parent[f"{path[-1]}z"] = parent.pop(path[-1])
        with pytest.raises(InvalidObjectError):
            validate(wrong)


def test_the_agent_is_process_1_and_no_shell_reads_its_words() -> None:
    (node,) = pod_of(made())["spec"]["containers"]
    assert node["command"] == [
        *("mntrain", "agent", "join", "--token-file", "/run/mntrain/secrets/token"),
        *("--name", "kubernetes-$(MNTRAIN_SLOT_INDEX)", "--state-dir"),
        *("/var/lib/mntrain/llama-7f3a", "--note", "costs $$5 and $$(HOME)"),
    ]
    assert "args" not in node
    assert {one["name"]: one.get("value") for one in node["env"]} == {
        "MNTRAIN_SLOT_INDEX": None,
        "MNTRAIN_NOTICE_S": "300",
        "NCCL_DEBUG": "WARN",
        "PRICE": "$$(5)",
    }
    assert "completion-index" in node["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]


def test_all_nodes_or_none_and_a_pod_that_is_moved_is_replaced_alone() -> None:
    spec = made(nodes=5, time_s=90.0)["spec"]
    (replicated,) = spec["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert spec["suspend"] is True
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (5, 5, "Indexed")
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 90)
    # As the API server asks: a policy for failed pods needs pods that are not restarted in place.
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_what_is_asked_for_is_in_the_pod() -> None:
    pod = pod_of(made(**EVERYTHING))
    spec, (node,) = pod["spec"], pod["spec"]["containers"]
    assert node["resources"] == {
        "limits": {
            "cpu": "16",
            "memory": "128Gi",
            "nvidia.com/gpu": "4",
            "rdma/hca_shared_devices_a": "2",
        }
    }
    assert node["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert spec["terminationGracePeriodSeconds"] == 600
    assert spec["nodeSelector"] == {"pool": "train", "zone": "a"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert spec["securityContext"] == {"runAsUser": 1000, "fsGroup": 1000}
    assert pod["metadata"]["annotations"] == {
        "k8s.v1.cni.cncf.io/networks": "ml/roce",
        "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/rack",
    }
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o400
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == "runs"
    assert {one["name"] for one in node["volumeMounts"]} == set(volumes)


def test_without_rdma_no_right_is_asked_for_and_a_save_has_time() -> None:
    spec = pod_of(made())["spec"]
    assert "securityContext" not in spec["containers"][0]
    assert spec["terminationGracePeriodSeconds"] >= 60


@pytest.mark.parametrize("kind", [JOBSET, TRAINJOB], ids=["JobSet", "TrainJob"])
def test_kueue_finds_the_outer_object_alone(kind: dict[str, str]) -> None:
    built = made(**EVERYTHING | kind)
    labels = built["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team-a"
    assert labels["kueue.x-k8s.io/priority-class"] == "low"
    assert str(built).count("queue-name") == 1


def test_a_trainjob_has_the_same_pod_as_patches_of_its_runtime() -> None:
    job, train = made(**EVERYTHING), made(**EVERYTHING | TRAINJOB)
    pod, spec = pod_of(job), train["spec"]
    (patch,) = spec["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    patched = replicated["template"]["spec"]["template"]
    assert patched["metadata"] == pod["metadata"]
    (own,), (other,) = pod["spec"]["containers"], patched["spec"]["containers"]
    assert spec["trainer"]["command"] == own["command"]
    assert spec["trainer"]["env"] == own["env"]
    assert spec["trainer"]["resourcesPerNode"] == own["resources"]
    assert spec["trainer"]["numNodes"] == 3
    # The webhook refuses these: the runtime's own are torchrun's.
    assert not [one for one in own["env"] if one["name"].startswith("PET_")]
    for key in ("volumeMounts", "securityContext"):
        assert other[key] == own[key]
    for key in ("volumes", "nodeSelector", "tolerations", "terminationGracePeriodSeconds"):
        assert patched["spec"][key] == pod["spec"][key]


def test_what_is_rendered_is_valid_and_holds_no_secret() -> None:
    asks = request(**EVERYTHING)
    text = rendered(asks, COMMAND, "llama-7f3a", asked(asks, None))
    objects = list(yaml.safe_load_all(text))
    assert [one["kind"] for one in objects] == ["JobSet", "Secret", "NetworkPolicy"]
    for one in objects:
        validate(one)
    assert "mntrain-secret-token" not in text
    assert objects[1]["stringData"].keys() == {"token"}
