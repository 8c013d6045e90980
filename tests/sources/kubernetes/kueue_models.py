"""Kueue's Workload, ``kueue.x-k8s.io/v1beta2``, as strict records: no field but these.

Fields, limits and what is required are those of the CustomResourceDefinition of Kueue 0.19
(``config/components/crd/bases``), without the status of topologies and of other clusters, which
nothing here reads or writes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ObjectName = Annotated[str, Meta(max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Count = Annotated[int, Meta(ge=0)]
Reason = Annotated[str, Meta(max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]


class Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    pass


class OwnerReference(Strict, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class Metadata(Strict, frozen=True):
    name: ObjectName
    namespace: str
    uid: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class TopologyRequest(Strict, frozen=True):
    required: Annotated[str, Meta(max_length=63)] = ""
    preferred: Annotated[str, Meta(max_length=63)] = ""
    unconstrained: bool = False


class PodSet(Strict, frozen=True):
    template: dict[str, Any]
    name: Name = "main"
    count: Count = 1
    min_count: Annotated[int, Meta(ge=1)] = 1
    topology_request: TopologyRequest | None = None


class PriorityClassRef(Strict, frozen=True):
    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    name: ObjectName


class WorkloadSpec(Strict, frozen=True):
    pod_sets: Annotated[list[PodSet], Meta(min_length=1, max_length=18)]
    queue_name: ObjectName = ""
    active: bool = True
    priority: int = 0
    priority_class_ref: PriorityClassRef | None = None
    maximum_execution_time_seconds: Annotated[int, Meta(ge=1)] | None = None


class Condition(Strict, frozen=True):
    type: Annotated[str, Meta(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: Annotated[str, Meta(max_length=32768)]
    last_transition_time: datetime
    observed_generation: Count = 0


class CheckState(Strict, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=316)]
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: Annotated[str, Meta(max_length=32768)]
    last_transition_time: datetime


class Eviction(Strict, frozen=True):
    reason: Annotated[str, Meta(max_length=316)]
    underlying_cause: Annotated[str, Meta(max_length=316)]
    count: Count


class SchedulingStats(Strict, frozen=True):
    evictions: Annotated[list[Eviction], Meta(max_length=256)]


class RequeueState(Strict, frozen=True):
    count: Count = 0
    requeue_at: datetime | None = None


class WorkloadStatus(Strict, frozen=True):
    conditions: Annotated[list[Condition], Meta(max_length=16)] = []
    admission_checks: Annotated[list[CheckState], Meta(max_length=8)] = []
    scheduling_stats: SchedulingStats | None = None
    requeue_state: RequeueState | None = None
    accumulated_past_execution_time_seconds: int = 0


class KueueWorkload(Strict, frozen=True):
    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["Workload"]
    metadata: Metadata
    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()
