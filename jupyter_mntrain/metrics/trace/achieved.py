"""Achieved: the speeds of devices and links that a job reached, for another plan. Pure."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.metrics.trace.off_plan import Measured, message_times
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed, Plan
from jupyter_mntrain.plan.measured_speeds import KnownSpeeds


def achieved(plan: Plan, measured: Measured, job: str) -> KnownSpeeds:
    """Correct the speeds that a plan assumed by those that its job reached.

    A rank that computes twice as long as planned has half the speed, in FLOPs and in bytes; a
    message that takes twice as long has half the bandwidth and twice the latency.

    Args:
        job: its id, for people.
    """
    devices: dict[tuple[str, str], DeviceSpeed] = {}
    links: dict[tuple[str, str], LinkSpeed] = {}
    source = f"as job {job} achieved"
    for number, rank in enumerate(plan.ranks):
        took = measured.computing_s.get(number)
        if not took or rank.computing_s <= 0:
            continue
        ratio = took / rank.computing_s
        old = rank.speed.bytes_per_s
        speed = DeviceSpeed(
            flops_per_s=rank.speed.flops_per_s / ratio,
            bytes_per_s=None if old is None else old / ratio,
            source=source,
            is_measured=True,
            codecs=rank.speed.codecs,
        )
        device = (rank.node, rank.device)
        known = devices.get(device)
        if known is None or speed.flops_per_s < known.flops_per_s:
            devices[device] = speed
    for one in message_times(plan, measured):
        link, ratio = one.link, one.took_s / one.planned_s
        if ratio <= 0:
            continue
        pair = (plan.ranks[link.sender].node, plan.ranks[link.receiver].node)
        slower = msgspec.structs.replace(
            link.speed,
            bytes_per_s=link.speed.bytes_per_s / ratio,
            latency_s=link.speed.latency_s * ratio,
            source=source,
            is_measured=True,
        )
        before = links.get(pair)
        if before is None or slower.bytes_per_s < before.bytes_per_s:
            links[pair] = slower
    return KnownSpeeds(devices, links)
