"""Requests for nodes on Kubernetes, in one line each."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.sources.source import SECRETS, SLOT, STATE, NodesRequest, SlotCommand

COMMAND = SlotCommand(
    ("mntrain", "agent", "join", "--token-file", f"{SECRETS}/token", "--name", SLOT,
     "--state-dir", STATE, "--note", "costs $5 and $(HOME)"),
    secrets={"token": "mntrain-secret-token"},
    environment={"NCCL_DEBUG": "WARN", "PRICE": "$(5)"},
)  # fmt: skip

EVERYTHING = {
    "image": "registry.example/lab/train:1",
    "namespace": "ml",
    "local-queue": "team-a",
    "queue-priority": "low",
    "cpu": "16",
    "memory": "128Gi",
    "shm": "32Gi",
    "rdma": "rdma/hca_shared_devices_a=2",
    "network": "ml/roce",
    "storage": "runs",
    "grace": "600",
    "topology": "cloud.google.com/rack",
    "node": ("pool=train", "zone=a"),
    "tolerate": ("nvidia.com/gpu:NoSchedule", "team=a:NoExecute", "spot"),
    "pull-secret": "registry",
    "account": "trainer",
    "user": "1000",
}


def request(nodes: int = 3, gpus: str = "4", **fields: Any) -> NodesRequest:
    """Options by their names with ``_`` for ``-``."""
    basis = {name: fields.pop(name) for name in ("time_s", "name") if name in fields}
    options = {"image": "train:1"} | {name.replace("_", "-"): of for name, of in fields.items()}
    told = {name: (of,) if isinstance(of, str) else tuple(of) for name, of in options.items() if of}
    return NodesRequest("kubernetes", nodes, gpus=gpus, options=told, **basis)
