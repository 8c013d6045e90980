"""Plan records: speeds of devices and links, a job's predicted step, and the spans of one step."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, Rank

SpanKind = Literal["F", "B", "I", "W", "send", "receive", "wait", "update"]
"""What a rank does: a forward pass; a backward pass, whole (B), or the gradients of inputs (I) or
of weights (W) alone; a message to or from another rank; waiting for one; the optimizer."""


class StepSpan(Record, frozen=True):
    """A span of a step.

    Args:
        stage, microbatch: that it is for; ``None`` where it is for none.
        begin_s, end_s: from the step's begin.
        peer: the other rank of a message.
    """

    kind: SpanKind
    begin_s: float
    end_s: float
    stage: int | None = None
    microbatch: int | None = None
    peer: Rank | None = None


class StepSpans(Record, frozen=True):
    """One step of a pipeline as spans, recorded or predicted.

    Args:
        seconds: from its begin to its end.
        ranks: the spans of each rank, in order of their begin.
        step: its number; ``None`` if it is predicted.
    """

    seconds: float
    ranks: tuple[tuple[StepSpan, ...], ...]
    step: int | None = None


class CodecSpeed(Record, frozen=True):
    """The speed at which a device compresses what stages send to each other, and the other way.

    Args:
        form: format of the messages: ``bfloat16``, ``int8`` or ``int4``.
        encoding: bytes per second, as they are computed, that are made to messages.
        decoding: bytes per second that are made of messages.
    """

    form: str
    encoding: float
    decoding: float

    def faster(self, times: float) -> CodecSpeed:
        """Return the speed, multiplied."""
        return CodecSpeed(self.form, times * self.encoding, times * self.decoding)


class DeviceSpeed(Record, frozen=True):
    """The speed of a device for one rank in one dtype.

    Args:
        flops_per_s: of large matrix products.
        bytes_per_s: of its memory; ``None`` if unknown, which counts as infinitely fast.
        source: where the figures come from, in words.
        is_measured: by a job, or while nothing else ran; not taken from a data sheet.
        overhead_s: fixed seconds of a layer's forward pass, however few its tokens; twice as much
            of its backward pass, as much of either half.
        layer_bytes_per_s: at which what a layer saves for its backward pass is written and read, so
            that measured layers take as long as they did; ``None``: as ``bytes_per_s``.
        codecs: of compressed messages, by format; those that are missing are guessed from
            ``bytes_per_s``.
    """

    flops_per_s: float
    bytes_per_s: float | None = None
    source: str = ""
    is_measured: bool = False
    overhead_s: float = 0.0
    layer_bytes_per_s: float | None = None
    codecs: tuple[CodecSpeed, ...] = ()


class MeasuredLayer(Record, frozen=True):
    """The time of one Llama-like decoder layer for one sequence: with a gated MLP, and as many key
    and value heads as heads, of 64 values each.

    Args:
        backward_s: with the gradients of inputs and weights.
        product_flops_per_s: of products as its MLP has them.
        variation: by how much times of both passes differ: standard deviation over median, by the
            middle half of them; 0 if an older agent measured.
    """

    hidden_size: int
    intermediate_size: int
    tokens: int
    forward_s: float
    backward_s: float
    product_flops_per_s: float
    variation: float = 0.0


class AchievedRate(Record, frozen=True):
    """The rate that a rank of a job achieved on a device while it computed.

    Args:
        flops_per_s: of the model's FLOPs: what was recomputed is not among them.
        time_s: Unix time of its last step.
        slower: seconds that it computed, over those that were expected of the measurement.
    """

    job_id: JobId
    flops_per_s: float
    time_s: float
    slower: float = 1.0


class DeviceMeasurement(Record, frozen=True):
    """A node's device as measured for one rank in one dtype, by an interpreter of its jobs.

    Args:
        gpu: its index, as in :class:`~jupyter_mntrain.model.records.node.Gpu`; ``None``: the CPU.
        device: its name; of a GPU, its UUID is ``uuid``.
        dtype: ``float32`` or ``bfloat16``.
        ranks: on the node that were measured at once, as they also train at once.
        threads: of each of them.
        cpus: cores that the node's jobs may use: a limit of CPU time makes it a fraction.
        torch: version of it that measured.
        python: interpreter that measured; empty: the agent's own.
        time_s: Unix time.
        flops_per_s: of products of large square matrices.
        bytes_per_s: of its memory, read and written.
        operation_s: fixed cost of one operation on a few values.
        layers: with wide and narrow layers, and few and many tokens.
        codecs: of messages between stages; empty if an older version measured.
        disturbed: what disturbed the measurement, in words; empty if nothing did.
        achieved: by the newest job that trained on it in this dtype.
    """

    gpu: int | None
    device: str
    dtype: str
    time_s: float
    flops_per_s: float
    bytes_per_s: float
    operation_s: float
    layers: tuple[MeasuredLayer, ...] = ()
    codecs: tuple[CodecSpeed, ...] = ()
    uuid: str = ""
    ranks: int = 1
    threads: int = 1
    cpus: float = 0.0
    torch: str = ""
    python: str = ""
    disturbed: str = ""
    achieved: AchievedRate | None = None


MeasuredDtype = Literal["float32", "bfloat16"]


DEVICES_LIMIT_S = tunables.seconds("devices.measure_timeout_s")
"""Longest time that a node measures its devices."""


class MeasureDevices(Record, frozen=True):
    """Request to measure devices as ranks of a job would use them, and to store the results.

    Args:
        ranks: on the CPU, all at once; where GPUs are given, there is one on each of them.
        gpus: their indices; empty: the CPU.
        python: as in :class:`~jupyter_mntrain.model.records.job.JobSpec`; ``None``: the agent's.
    """

    ranks: Annotated[int, Meta(ge=1, le=256)] = 1
    gpus: Annotated[tuple[int, ...], Meta(max_length=64)] = ()
    dtypes: Annotated[tuple[MeasuredDtype, ...], Meta(min_length=1, max_length=2)] = (
        "float32",
        "bfloat16",
    )
    python: str | None = None


class MeasuringDevices(Record, frozen=True):
    """What a node that measures its devices does now.

    Args:
        dtype: that it measures; ``None``: it loads torch, or does not measure.
    """

    dtype: str | None = None


class LinkSpeed(Record, frozen=True):
    """The speed of a link in one direction.

    Args:
        bytes_per_s: of payload.
        latency_s: one way.
        source: where the figures come from, in words.
        is_measured: and not what the interface claims.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    source: str = ""
    is_measured: bool = False


class PlannedRank(Record, frozen=True):
    """A plan's share for one rank, with its predictions.

    Args:
        node: its name.
        device: for people, such as ``GPU 0, RTX 4090`` or ``CPU``.
        speed: of the device, as the plan assumed it.
        layers: of each of its stages.
        computing_s: seconds of a step in which it computes.
        bubble: share of a step in which it does not.
        coding_s: seconds of a step in which it encodes and decodes compressed messages, and does
            not compute.
        memory_bytes: that it needs.
        memory_limit_bytes: that it has; ``None`` if that is unknown.
    """

    node: str
    device: str
    speed: DeviceSpeed
    layers: tuple[int, ...]
    computing_s: float
    bubble: float
    memory_bytes: float
    memory_limit_bytes: float | None = None
    coding_s: float = 0.0


class PlannedLink(Record, frozen=True):
    """A plan's prediction for one direction between two ranks on different nodes.

    Args:
        sender, receiver: ranks.
        speed: as the plan assumed it.
        sent_bytes: in a step.
        busy: share of a step.
    """

    sender: Rank
    receiver: Rank
    speed: LinkSpeed
    sent_bytes: float
    busy: float


class Compressed(Record, frozen=True):
    """What ranks on two nodes send to each other is compressed.

    Args:
        sent_as: how, as in ``pipeline.transfer`` of recipes, such as ``int8``.
        nodes: their names.
    """

    sent_as: str
    nodes: tuple[str, str]


class OtherPlan(Record, frozen=True):
    """An alternative to the chosen plan.

    Args:
        name: what it is, in words, such as ``equal split`` or ``second best``.
        chosen: its settings, as in :class:`Plan`.
        step_s: predicted; ``None`` where it cannot run.
        obstacle: why it cannot run, in words.
        memory_bytes: that each rank needs.
        note: what it costs besides time, in words.
    """

    name: str
    chosen: dict[str, str] = {}
    step_s: float | None = None
    obstacle: str = ""
    memory_bytes: tuple[float, ...] = ()
    note: str = ""


class Improvement(Record, frozen=True):
    """A change that would shorten the step, planned on its own.

    Args:
        what: in words, such as ``a 2.5 Gbit/s link from node1 to node2``.
        gain: predicted step / predicted step with it; above 1.
        low, high: the gain, if guessed speeds are off by up to 4; ``None`` where all were
            measured.
    """

    what: str
    gain: float
    low: float | None = None
    high: float | None = None


class Plan(Record, frozen=True):
    """A plan for a job, with its predictions.

    Args:
        step_s: predicted seconds of a step, the optimizer included.
        tokens_per_s: of the job.
        chosen: value of each setting that the recipe leaves open, by ``section.field``, in TOML
            without quotes.
        order: participants in the best order, as indices into those given.
        ranks: of the first pipeline, in order.
        links: of the first pipeline, between nodes.
        compressed: what is compressed between nodes, in the order of stages.
        compressed_gain: predicted step without compression / this one; ``None`` where nothing is
            compressed, or the recipe says so.
        uncompressed: why nothing may be compressed, in words; empty if it may be.
        in_flight: microbatches in flight per stage; empty where the schedule fixes them.
        deferred: gradients of weights that each stage defers at most; empty without.
        update_s: seconds of the step that the optimizer takes.
        bottleneck: what sets the pace, in words.
        others: the equal split, the second best, other ways to split the job, and, where somebody
            asked what would help, to send between nodes.
        improvements: what would help; empty where nobody asked. What is set in the recipe comes
            before other hardware, and of either the most helpful first.
        guesses: what was not measured, in words.
    """

    step_s: float
    tokens_per_s: float
    chosen: dict[str, str] = {}
    order: tuple[int, ...] = ()
    ranks: tuple[PlannedRank, ...] = ()
    links: tuple[PlannedLink, ...] = ()
    compressed: tuple[Compressed, ...] = ()
    compressed_gain: float | None = None
    uncompressed: str = ""
    in_flight: tuple[int, ...] = ()
    deferred: tuple[int, ...] = ()
    update_s: float = 0.0
    bottleneck: str = ""
    others: tuple[OtherPlan, ...] = ()
    improvements: tuple[Improvement, ...] = ()
    guesses: tuple[str, ...] = ()
