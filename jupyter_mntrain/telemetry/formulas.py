"""Formulas for every derived number that mntrain shows, with sources. Pure; fractions are 0..1.

Model FLOPs follow PaLM (arXiv 2204.02311, appendix B): a multiply-add is 2 FLOPs, backward costs
twice forward, attention counts the full T x T square, or T x W where a layer sees W tokens back
(sliding windows), recomputation counts nothing. PaLM's
``6N + 12·L·H·Q·T`` is the sum of ours over a model's layers and head, with N without the
embedding lookup and the norms; ours is split by layer so that a pipeline stage has its own number.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from jupyter_mntrain.model._record import Record, UserRecord

FORWARD_AND_BACKWARD = 3
"""Backward computes the gradient of the input and of the weight: twice the forward's work."""


class LayerKind(UserRecord, frozen=True):
    """What a decoder layer computes, besides its sizes; by default as in Llama."""

    is_gated: bool = True
    """Whether its MLP has three matrices, rather than two."""
    mlp_values: int = 4
    """Values of the intermediate size that autograd keeps of one token."""
    norm: Literal["rms", "offset", "layer"] = "rms"
    """``offset`` multiplies by 1 + weight in float32, as Gemma; ``layer`` is torch's LayerNorm."""
    norms: int = 2
    """Norms of hidden states."""
    head_norm: Literal["none", "each", "whole"] = "none"
    """Whether queries and keys are normed, of each head, or all heads' together."""
    is_capped: bool = False
    """Whether attention scores are capped."""
    is_fused: bool = False
    """Whether values are kept as a part of one matrix's result, with its queries and keys, next to
    the copies that rotation makes of these."""


class ModelShape(Record, frozen=True):
    """The dimensions of a decoder with grouped-query attention."""

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary_size: int
    layer: LayerKind = LayerKind()

    @property
    def mlp_outputs(self) -> int:
        """The number of values that the MLP's first matrices give for one token."""
        return (1 + self.layer.is_gated) * self.intermediate_size


def layer_flops_per_token(shape: ModelShape, sequence_length: float) -> float:
    """Return the FLOPs of one decoder layer for one token, forward and backward (PaLM appendix B).

    Args:
        sequence_length: that the layer sees; of several layers, their mean.
    """
    query_and_output = 2 * shape.hidden_size * shape.heads * shape.head_dim
    key_and_value = 2 * shape.hidden_size * shape.key_value_heads * shape.head_dim
    mlp = shape.hidden_size * (shape.mlp_outputs + shape.intermediate_size)
    attention = 2 * shape.heads * shape.head_dim * sequence_length
    multiply_adds = query_and_output + key_and_value + mlp + attention
    return float(2 * FORWARD_AND_BACKWARD * multiply_adds)


def layer_windows(config: Any) -> tuple[int | None, ...]:
    """Return how many tokens back each layer sees, itself included; ``None`` for all of them.

    Args:
        config: of a transformers decoder.
    """
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if kinds:
        return tuple(window if one == "sliding_attention" else None for one in kinds)
    is_used = getattr(config, "use_sliding_window", None) is not False
    return (window if is_used else None,) * int(config.num_hidden_layers)


def head_flops_per_token(shape: ModelShape) -> float:
    """Return the FLOPs of the output projection for one token, forward and backward.

    The embedding is a lookup and costs nothing, tied or not.
    """
    return float(2 * FORWARD_AND_BACKWARD * shape.hidden_size * shape.vocabulary_size)


def stage_flops_per_token(
    shape: ModelShape,
    sequence_length: float,
    *,
    layers: int,
    has_head: bool,
    adapter_values: int | None = None,
    trains_head: bool = False,
) -> float:
    """Return a stage's FLOPs for one token, forward and backward.

    Args:
        adapter_values: of a layer's adapters, next to which no gradient of a weight is computed;
            ``None`` where all weights are trained.
        trains_head: whether the gradient of the head is computed alongside adapters.
    """
    head = head_flops_per_token(shape) if has_head else 0.0
    whole = layers * layer_flops_per_token(shape, sequence_length) + head
    if adapter_values is None:
        return whole
    of_frozen = layers * layer_flops_per_token(shape, 0.0) + (0.0 if trains_head else head)
    of_adapters = layers * 2 * FORWARD_AND_BACKWARD * adapter_values
    return whole - of_frozen / FORWARD_AND_BACKWARD + of_adapters


def dense_flops_per_token(
    weights: int, *, layers: int, heads: int, head_dim: int, sequence_length: float
) -> float:
    """Return the FLOPs of a dense decoder for one token: ``6N + 12·L·H·Q·T`` (PaLM appendix B).

    Holds for layers of any kind, and equals the sum over a :class:`ModelShape`'s layers and head.

    Args:
        weights: N, the values of all matrices that a token is multiplied with, including the head.
    """
    attention = 2 * layers * heads * head_dim * sequence_length
    return float(2 * FORWARD_AND_BACKWARD * (weights + attention))


def mfu(flops_per_s: float | None, peak_flops_per_s: float | None) -> float | None:
    """Return the model FLOPs utilization; ``None`` if anything it needs is unknown.

    Source: PaLM appendix B. Of a job: the FLOPs of all ranks over the sum of their devices' *own*
    peaks, which is right for mixed devices. At most 1: a step of the job, from one end of all ranks
    to the next, may be shorter than the step of a rank that it has the FLOPs of.
    """
    if flops_per_s is None or not peak_flops_per_s:
        return None
    return min(1.0, flops_per_s / peak_flops_per_s)


def throughput(tokens: float, seconds: float) -> float | None:
    """Return the tokens per second; ``None`` if no time passed."""
    return tokens / seconds if seconds > 0 else None


FILLED: Final = {
    "eager-zero-bubble": 2 / 3,
    "interleaved-zero-bubble": 2 / 3,
    "zbv": 1.0,
    "dualpipev": 1.0,
}
"""Share of its idle slots that a schedule fills with weight gradients."""


def ideal_bubble(
    stages: int, microbatches: int, virtual_stages: int = 1, *, schedule: str | None = None
) -> float:
    """Return the share of a step that a balanced pipeline idles: ``i / (v·M + i)``, ``i = S-1``.

    The same for GPipe (arXiv 1811.06965) and 1F1B; schedules with ``v`` stages per rank divide it
    by ``v`` (Megatron-LM, arXiv 2104.04473, section 2.2). Schedules that split the backward pass
    fill two thirds of it with weight gradients (ZB-H1, arXiv 2401.10241, section 2.3), or all of it
    in a V, if forward, input gradient and weight gradient take the same time (ZB-V, section 6).

    Args:
        stages: pipeline ranks, S.
        microbatches: per schedule step, M.
        virtual_stages: stages on each rank, v.
        schedule: name in a recipe.
    """
    idle = (stages - 1) * (1.0 - FILLED.get(schedule or "", 0.0))
    return idle / (virtual_stages * microbatches + idle)


def measured_bubble(compute_s: float, step_s: float) -> float | None:
    """Return the share of a step that a rank's stages spent outside forward and backward.

    That is the schedule's bubble, exposed transfers, and the optimizer.
    """
    if step_s <= 0:
        return None
    return min(1.0, max(0.0, 1.0 - compute_s / step_s))


class StepShares(Record, frozen=True):
    """How a rank spent a step: fractions of its duration that add up to 1.

    Args:
        compute: forward, backward and the optimizer.
        coding: encoding and decoding of what is sent in fewer bits; ``None`` if nothing is.
        send: time that the link needs for the bytes sent to other nodes; ``None`` if unknown.
        schedule_bubble: idle time of the schedule itself, with equal stages and infinitely fast
            links; ``None`` if unknown.
        wait: the rest: waiting for a slower stage, for data, or for a link slower than measured;
            ``None`` with the bubble.
    """

    compute: float
    send: float | None
    schedule_bubble: float | None
    wait: float | None
    coding: float | None = None


def step_shares(
    step_s: float,
    compute_s: float,
    *,
    optimizer_s: float = 0.0,
    coding_s: float | None = None,
    transfer_s: float | None = None,
    bubble: float | None = 0.0,
) -> StepShares | None:
    """Split one step of one rank into shares; ``None`` if no time passed.

    Idle slots of the schedule are as long as this rank's own compute slots, so being slowed down by
    another rank counts as waiting, not as the schedule's bubble. Each share is capped by what the
    previous ones leave, so that the sum never exceeds the step.

    Args:
        compute_s: forward and backward.
        coding_s: encoding and decoding; ``None`` = nothing is.
        transfer_s: bytes sent to other nodes over the link's capacity.
        bubble: of the schedule, from :func:`ideal_bubble`; while it is unknown, so is what of the
            rest is waiting.
    """
    if step_s <= 0:
        return None
    compute = min(1.0, (compute_s + optimizer_s) / step_s)
    left = 1.0 - compute
    coding = None if coding_s is None else min(left, coding_s / step_s)
    left -= coding or 0.0
    send = None if transfer_s is None else min(left, transfer_s / step_s)
    left -= send or 0.0
    if bubble is None:
        return StepShares(compute, send, schedule_bubble=None, wait=None, coding=coding)
    idle = compute_s * bubble / (1.0 - bubble) / step_s if bubble < 1.0 else left
    idle = min(left, idle)
    waited = max(0.0, left - idle)
    return StepShares(compute, send, schedule_bubble=idle, wait=waited, coding=coding)


MOST_OVERHEAD = 1.1
"""Counters hold headers and acknowledgments, payload does not: up to this much more than the
payload is the same traffic (TCP over Ethernet: 1.05, small messages a little more)."""

HEADER_BYTES = 66
"""Of each packet, as an interface counts it: Ethernet 14 (IEEE 802.3, without the checksum), IPv4
20 (RFC 791), TCP 20 (RFC 9293), timestamps 12 (RFC 7323)."""


def counted_rate(
    payload_bytes_per_s: float, counted_bytes_per_s: float | None, segment_bytes: int
) -> float:
    """Return a TCP stream's rate as its interface counts it, with headers.

    That is what the counters say, if this stream alone explains it. Otherwise (other traffic,
    counters that are updated seldom, or none) headers are added to every full segment.

    Args:
        segment_bytes: payload of a full segment.
    """
    if (
        counted_bytes_per_s is not None
        and payload_bytes_per_s <= counted_bytes_per_s <= MOST_OVERHEAD * payload_bytes_per_s
    ):
        return counted_bytes_per_s
    return payload_bytes_per_s * (segment_bytes + HEADER_BYTES) / segment_bytes


def link_utilization(bytes_per_s: float, capacity_bytes_per_s: float | None) -> float | None:
    """Return the share of a link's capacity in use in *one* direction; links are full duplex.

    100 % is what the interface counted while a probe filled the link: both are counted in the same
    way, headers included. ``None`` if the capacity is unknown.
    """
    if not capacity_bytes_per_s:
        return None
    return bytes_per_s / capacity_bytes_per_s
