"""A benchmark's report: figures against the measured line rate, what is kept, what is too slow."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.metrics.benchmark.reporting import benched_links
from jupyter_mntrain.model.records.doctor.benchmark import Transport, read_line, written_line
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.plan.measured_speeds import PAYLOAD_SHARE, link_speeds
from jupyter_mntrain.plan.networks.outdated import marked_at_receivers, marked_at_sender
from tests.metrics.benchmark.reports import PAYLOAD, lines, nodes, placements, report
from tests.wording import says

TCP = Transport(network="Socket", ways=("NET/Socket",), complaint="NET/IB : No device found.")
RAIL = Transport(
    network="IB",
    devices=("mlx5_0:1", "mlx5_1:1"),
    ways=("NET/IB/GDRDMA",),
    rails=("mlx5_0:1",),
)


def causes(made) -> str:
    return " / ".join(str(one) for one in made.problems)


def test_every_line_is_read_as_it_was_written():
    for one in lines(transport=RAIL):
        assert read_line(f"[a rank 0] {written_line(one)}") == one
    for damaged in ("", "mntrain bench: {", 'mntrain bench: {"type":"no"}', "said by a library"):
        assert read_line(damaged) is None


def test_the_bus_bandwidth_stands_beside_what_the_slowest_link_carries():
    made = report(lines(3), nodes(3))
    assert made.line_bytes_per_s == pytest.approx(PAYLOAD)
    last = made.of("send")[-1]
    assert last.line_share == pytest.approx(0.98, abs=0.001)
    assert made.of("all_reduce")[-1].bus_bytes_per_s == pytest.approx(last.bus_bytes_per_s * 4 / 3)
    assert len(made.pairs) == 6
    assert made.problems == ()


def test_without_a_measurement_there_is_no_share_of_the_line_rate():
    made = report(lines(), nodes(capacity=None))
    assert made.line_bytes_per_s is None
    assert {one.line_share for one in made.sizes} == {None}
    assert {one.line_share for one in made.pairs} == {None}


def test_what_the_user_gave_counts_where_nothing_was_measured():
    infos = [
        msgspec.structs.replace(
            info,
            inventory=msgspec.structs.replace(
                info.inventory,
                interfaces=tuple(
                    msgspec.structs.replace(one, given=Capacity(1e8, "given"))
                    for one in info.inventory.interfaces
                ),
            ),
        )
        for info in nodes(capacity=None)
    ]
    assert report(lines(), infos).line_bytes_per_s == pytest.approx(1e8 * PAYLOAD_SHARE)


def test_a_slow_pair_is_named_beside_the_others():
    made = report(lines(3, slow={(0, 2): 0.1}), nodes(3))
    assert len(made.problems) == 1
    assert says("a → hal reaches", made.problems[0].cause)
    assert says("the others", made.problems[0].cause)
    assert made.problems[0].node == "a"


def test_a_network_that_is_slow_as_a_whole_is_one_problem():
    made = report(lines(3, share=0.5), nodes(3))
    assert len(made.problems) == 1
    assert says("50% of the", made.problems[0].cause)


def test_tcp_although_infiniband_is_active_is_named_with_nccls_own_reason():
    made = report(lines(transport=TCP), nodes(ports=2))
    assert [one.node for one in made.problems] == ["a", "b"]
    assert says("NCCL uses TCP although mlx5_0:1, mlx5_1:1 are active", causes(made))
    assert says("No device found", causes(made))
    assert report(lines(transport=TCP), nodes()).problems == (), "there is no InfiniBand"


def test_ranks_that_share_one_rail_of_several_are_named():
    made = report(lines(2, 2, transport=RAIL), nodes(ports=2), nproc=2)
    assert len(made.problems) == 2
    assert says("its 2 ranks all use mlx5_0:1, one of 2 active ports", causes(made))
    assert made.line_bytes_per_s is None, "TCP's rate says nothing of InfiniBand"
    assert report(lines(transport=RAIL), nodes(ports=2)).problems == (), "one rank needs one rail"
    one_port = report(lines(2, 2, transport=RAIL), nodes(ports=1), nproc=2)
    assert one_port.problems == ()


def test_senders_keep_what_messages_reached_and_plans_use_it():
    infos = nodes()
    kept = benched_links(lines(share=0.7), placements(infos), infos, 100.0)
    assert [(one.sender, one.receiver, one.backend) for one in kept] == [
        ("a", "b", "gloo"),
        ("b", "a", "gloo"),
    ]
    known = [
        msgspec.structs.replace(
            info,
            inventory=msgspec.structs.replace(
                info.inventory,
                interfaces=tuple(
                    msgspec.structs.replace(
                        one, benched=tuple(link for link in kept if link.sender == info.name)
                    )
                    if one.name == "eno1"
                    else one
                    for one in info.inventory.interfaces
                ),
            ),
        )
        for info in infos
    ]
    own = [info.inventory.interfaces[1] for info in known]
    speed = link_speeds(known, own)[0, 1]
    assert speed.bytes_per_s == pytest.approx(0.7 * PAYLOAD)
    assert (speed.latency_s, speed.is_measured) == (8e-5, True)
    for_nccl = link_speeds(known, own, is_for_many_streams=True)[0, 1]
    assert for_nccl.bytes_per_s == pytest.approx(PAYLOAD), "Gloo's rate is not NCCL's"


def test_what_was_reached_over_another_card_counts_nothing():
    infos = nodes()
    kept = benched_links(lines(), placements(infos), infos, 100.0)
    card = msgspec.structs.replace(infos[0].inventory.interfaces[1], benched=kept[:1])
    assert marked_at_sender(card).benched[0].outdated == ""
    other = msgspec.structs.replace(card, addresses=("10.0.9.9/24",))
    assert marked_at_sender(other).benched[0].outdated
    moved = [
        msgspec.structs.replace(
            infos[0], inventory=msgspec.structs.replace(infos[0].inventory, interfaces=(card,))
        ),
        msgspec.structs.replace(
            infos[1], inventory=msgspec.structs.replace(infos[1].inventory, interfaces=())
        ),
    ]
    assert marked_at_receivers(moved)[0].inventory.interfaces[0].benched[0].outdated
