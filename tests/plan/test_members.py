"""Participants: the choice, and every way to request what does not exist."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import Availability, Gpu, GpuProcess, NodeInfo
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.plan.members import Member, choose_participants, parse_member, shared_notes
from tests.standin.nodes import gpu, node
from tests.wording import says, wording
from tests.wording import says as reads

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("node1:2", Member(node="node1", nproc=2)),
        ("node1:2:eth1", Member(node="node1", nproc=2, interface="eth1")),
        ("node1:1:eth0:1", Member(node="node1", nproc=1, interface="eth0:1")),
        (" node1:2 ", Member(node="node1", nproc=2)),
        ("node1", Member(node="node1")),
        ("node1::eth1", Member(node="node1", interface="eth1")),
        ("node1:gpu0,2", Member(node="node1", nproc=2, gpus=(0, 2))),
        ("node1:gpu1:eth1", Member(node="node1", nproc=1, gpus=(1,), interface="eth1")),
    ],
)
def test_the_forms_of_a_member(text: str, member: Member) -> None:
    assert parse_member(text) == member


@pytest.mark.parametrize(
    "text", ["", ":2", "n:0", "n:-1", "n:two", "n:2:", "n:1.5", "n:²", "::e", "n:gpu", "n:gpu0,"]
)
def test_what_is_no_member_says_the_form(text: str) -> None:
    with pytest.raises(SpecError, match="HOST:N") as caught:
        parse_member(text)
    assert "\n" not in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n:MIG-5d3c1a", "nvidia-smi -i 0 -mig 0 on n"),
        ("n:mig0:eth1", "n:gpu0"),
        ("n:gpu1:0", "nvidia-smi -i 1 -mig 0 on n"),
        ("n:GPU-8932f937:eth1", "nvidia-smi -L on n"),
    ],
)
def test_a_device_that_is_no_whole_gpu_is_refused_with_the_fix(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_member(text)
    assert caught.value.node == "n"
    assert text in caught.value.cause
    assert says(words, caught.value.fix)


@given(NAMES, st.integers(1, 10**6), st.none() | NAMES)
def test_every_member_comes_back_as_it_was_written(
    name: str, nproc: int, interface: str | None
) -> None:
    text = f"{name}:{nproc}" + (f":{interface}" if interface else "")
    assert parse_member(text) == Member(node=name, nproc=nproc, interface=interface)


@given(st.text())
def test_any_text_is_a_member_or_one_clean_line(text: str) -> None:
    with contextlib.suppress(SpecError):
        member = parse_member(text)
        assert member.node
        assert member.nproc is None or member.nproc >= 1


def test_the_one_and_two_layout_on_nodes_without_gpus() -> None:
    chosen = choose_participants(
        [Member(node="b", nproc=1), Member(node="a", nproc=2, interface="eth1")],
        [node("a"), node("b"), node("c")],
    )
    assert chosen == (Participant(node="b"), Participant(node="a", nproc=2, interface="eth1"))


def test_nobody_named_and_no_gpus_is_one_process_on_every_node() -> None:
    assert choose_participants([], [node("b"), node("a")]) == (
        Participant(node="a"),
        Participant(node="b"),
    )


def test_nobody_named_takes_all_idle_gpus_and_leaves_out_nodes_without() -> None:
    chosen = choose_participants(
        [],
        [
            node("busy", gpus=(gpu(0, processes=(GpuProcess(pid=7),)),)),
            node("cpu"),
            node("one", gpus=(gpu(0, processes=(GpuProcess(pid=7),)), gpu(1))),
            node("two", gpus=(gpu(0), gpu(1))),
        ],
    )
    assert chosen == (
        Participant(node="one", nproc=1, gpus=(1,)),
        Participant(node="two", nproc=2, gpus=(0, 1)),
    )


def test_two_agents_of_one_machine_share_its_gpus_out() -> None:
    cards = (gpu(0), gpu(1), gpu(2))
    chosen = choose_participants(
        [], [node("a", gpus=cards, gpu_prefix="m"), node("b", gpus=cards, gpu_prefix="m")]
    )
    assert [p.nproc for p in chosen] == [2, 1]
    taken = [index for p in chosen for index in p.gpus]
    assert sorted(taken) == [0, 1, 2]


def test_named_agents_of_one_machine_do_not_get_the_same_gpu_twice() -> None:
    cards = (gpu(0),)
    nodes = [node("a", gpus=cards, gpu_prefix="m"), node("b", gpus=cards, gpu_prefix="m")]
    with pytest.raises(SpecError, match=wording(r"b: .*taken by an earlier member")):
        choose_participants([Member(node="a", nproc=1), Member(node="b", nproc=1)], nodes)


def test_a_number_takes_the_first_idle_ones() -> None:
    cards = (gpu(0, processes=(GpuProcess(pid=7),)), gpu(1), gpu(2), gpu(3))
    nodes = [node("a", gpus=cards, leased={"j-00000001": (1,)})]
    (chosen,) = choose_participants([Member(node="a", nproc=1)], nodes)
    assert chosen.gpus == (2,)
    (chosen,) = choose_participants([Member(node="a")], nodes)
    assert chosen.gpus == (2, 3)


def refusal(members: list[Member], *nodes: object) -> str:
    with pytest.raises(SpecError) as caught:
        choose_participants(members, nodes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert caught.value.fix
    return str(caught.value)


@pytest.mark.wording
def test_more_gpus_than_there_are() -> None:
    text = refusal([Member(node="a", nproc=3)], node("a", gpus=(gpu(0), gpu(1))))
    assert text == "a: has 2 GPUs, 3 requested. Fix: ask for a:2 at most."


@pytest.mark.wording
def test_more_gpus_than_are_free_names_who_has_them() -> None:
    cards = (gpu(0, processes=(GpuProcess(pid=41), GpuProcess(pid=42))), gpu(1), gpu(2))
    text = refusal([Member(node="a", nproc=3)], node("a", gpus=cards, leased={"j-00000001": (1,)}))
    assert text.startswith("a: 3 idle GPUs requested, but only 2 of 3 are idle")
    for reason in ("GPU 0 busy with pid 41 and pid 42", "GPU 1 leased to j-00000001"):
        assert says(reason, text)
    assert text.endswith("Fix: ask for a:2.")


@pytest.mark.parametrize(
    ("asked", "even_busy", "gpus", "shares"),
    [
        ("a:gpu0", False, (0,), True),
        ("a:gpu0,2", False, (0, 2), True),
        ("a:gpu2", False, (2,), True),
        ("a:1", False, (2,), False),  # an idle one comes first
        ("a:2", False, (0, 2), True),
        ("a", False, (2,), False),
        ("a:gpu0", True, (0,), True),
        ("a:2", True, (0, 1), False),  # it waits for them
    ],
)
def test_who_names_gpus_shares_them_with_a_warning(
    asked: str, even_busy: bool, gpus: tuple[int, ...], shares: bool
) -> None:
    ada = GpuProcess(pid=41, user="ada")
    cards = (gpu(0, processes=(ada,), memory_used_bytes=3 << 30), gpu(1), gpu(2))
    there = node("a", gpus=cards, leased={"j-00000001": (1,)})
    (chosen,) = choose_participants([parse_member(asked)], [there], even_busy=even_busy)
    assert (chosen.gpus, chosen.shares_gpus) == (gpus, shares)
    told = list(shared_notes([chosen], [there]))
    assert len(told) == (shares and 0 in gpus)
    for one in told:
        assert (one.kind, one.node) == (Kind.GPU_TAKEN, "a")
        assert "ada (pid 41)" in one.cause


@pytest.mark.parametrize("leased", [{}, {"j-00000001": ()}, {"j-00000001": (0,)}])
def test_who_computes_on_the_same_cpu_cores_is_named(leased: dict[str, tuple[int, ...]]) -> None:
    there = node("a", leased=leased)
    (chosen,) = choose_participants([parse_member("a:2")], [there])
    told = list(shared_notes([chosen], [there]))
    assert [(one.kind, one.node) for one in told] == [
        (Kind.JOBS_RUNNING, "a") for gpus in leased.values() if not gpus
    ]
    assert all("j-00000001" in one.cause for one in told)
    assert not list(shared_notes([chosen], [there], [JobId("j-00000001")]))
    begun = [msgspec.structs.replace(one, expires_s=1.0) for one in there.leases]
    starting = msgspec.structs.replace(there, leases=tuple(begun))
    assert not list(shared_notes([chosen], [starting]))


@pytest.mark.parametrize("used_bytes", [0, 3 << 30, 9 << 30])
@pytest.mark.parametrize("asked", ["a", "a:1", "a:gpu0"])
def test_a_display_is_no_job(used_bytes: int, asked: str) -> None:
    """A 4K desktop with a browser, and a GPU that shares its machine's memory."""
    there = node("a", gpus=(gpu(0, memory_used_bytes=used_bytes),))
    (chosen,) = choose_participants([parse_member(asked)], [there])
    assert chosen.gpus == (0,)


def test_gpus_are_named_by_their_ids_and_stay_in_that_order() -> None:
    cards = tuple(gpu(index) for index in range(4))
    (chosen,) = choose_participants([parse_member("a:gpu3,0")], [node("a", gpus=cards)])
    assert (chosen.nproc, chosen.gpus) == (2, (3, 0))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("a:gpu0,9", "a: has GPUs 0, 1, 2, not GPU 9"),
        ("a:gpu1,1", "a: GPU 1 is named twice. Fix: name each once."),
        (
            "a:gpu0,1",
            (
                "a: GPU 1 is not free (GPU 0 busy with pid 41; GPU 1 leased to j-00000001). "
                "Fix: choose from GPUs 0, 2."
            ),
        ),
        (
            "b:gpu0",
            "b: has no GPU, but GPU 0 is requested. Fix: ask for one process without a GPU: b:1.",
        ),
    ],
)
def test_a_gpu_that_cannot_be_had_is_named(asked: str, told: str) -> None:
    cards = (gpu(0, processes=(GpuProcess(pid=41),)), gpu(1), gpu(2))
    there = node("a", gpus=cards, leased={"j-00000001": (1,)})
    assert reads(told, refusal([parse_member(asked)], there, node("b")))


@pytest.mark.parametrize("cards", [(), (gpu(1),)])
def test_why_a_gpu_is_not_there_is_said(cards: tuple[Gpu, ...]) -> None:
    there = node("a", gpus=cards)
    inventory = msgspec.structs.replace(there.inventory, gpu_note="GPU 0 is split")
    there = msgspec.structs.replace(there, inventory=inventory)
    assert "GPU 0 is split" in refusal([parse_member("a:gpu0")], there)


def test_no_idle_gpu_anywhere() -> None:
    text = refusal([], node("a", gpus=(gpu(0, processes=(GpuProcess(pid=41),)),)), node("b"))
    assert says("a: GPU 0 busy with pid 41", text)
    assert says("--member a:gpu0", text), "or it is shared"


def test_an_unknown_node_is_answered_with_the_likely_one() -> None:
    nodes = (node("workstation"), node("laptop"))
    assert says("use workstation", refusal([Member(node="workstaton", nproc=1)], *nodes))
    assert says("use one of laptop, workstation", refusal([Member(node="xyz", nproc=1)], *nodes))
    assert says("mntrain agent run", refusal([Member(node="x", nproc=1)]))
    assert says("mntrain agent run", refusal([]))


def test_a_node_named_twice_also_by_its_id() -> None:
    members = [Member(node="a", nproc=1), Member(node="id-of-a", nproc=1)]
    assert says("a: is named twice, as 'a' and 'id-of-a'.", refusal(members, node("a")))
    assert says("a: is named twice. Fix: ", refusal([members[0]] * 2, node("a")))


def test_two_nodes_of_one_name_are_told_apart_by_id() -> None:
    twins = (node("a", node_id="1" * 32), node("a", node_id="2" * 32))
    text = refusal([Member(node="a", nproc=1)], *twins)
    assert "1" * 32 in text
    assert "2" * 32 in text
    (chosen,) = choose_participants([Member(node="2" * 32, nproc=1)], twins)
    assert chosen.node == "2" * 32


def test_a_node_answers_to_its_host_name_if_to_nothing_else() -> None:
    nodes = [node("a", hostname="box"), node("box", hostname="other")]
    assert find_node("box", nodes).name == "box"
    assert find_node("other", nodes).name == "box"


def test_a_job_that_waits_takes_what_is_busy_now() -> None:
    busy = node(
        "a", gpus=(gpu(0, processes=(GpuProcess(pid=41),)), gpu(1)), leased={"j-00000001": (1,)}
    )
    (one,) = choose_participants([Member(node="a", nproc=2)], [busy], even_busy=True)
    assert one.gpus == (0, 1)
    (everything,) = choose_participants([], [busy], even_busy=True)
    assert everything.gpus == (0, 1)
    with pytest.raises(SpecError, match=wording("has 2 GPUs, 3 requested")):
        choose_participants([Member(node="a", nproc=3)], [busy], even_busy=True)


def availability(name: str, **fields: Any) -> NodeInfo:
    return msgspec.structs.replace(node(name, gpus=(gpu(0), gpu(1))), **fields)


def test_only_what_is_lent_is_taken() -> None:
    some = availability("a", availability=Availability(gpus=(1,)))
    (one,) = choose_participants([], [some])
    assert one.gpus == (1,)
    (one,) = choose_participants([Member(node="a", nproc=1)], [some], even_busy=True)
    assert one.gpus == (1,)
    for member in (Member(node="a", nproc=2), Member(node="a", nproc=1, gpus=(0,))):
        with pytest.raises(SpecError) as caught:
            choose_participants([member], [some])
        assert reads("GPU 0 not offered by its owner", str(caught.value))


def test_a_drained_node_is_left_out_refused_or_waited_for() -> None:
    drained = Problem(kind=Kind.DRAINED, cause="its owner drained it: exam", fix="leave it out")
    closed, other = availability("a", problem=drained), availability("b")
    assert [one.node for one in choose_participants([], [closed, other])] == ["b"]
    for members, nodes in (([Member(node="a")], [closed, other]), ([], [closed])):
        with pytest.raises(RefusedError) as caught:
            choose_participants(members, nodes)
        assert caught.value.problem == msgspec.structs.replace(drained, node="a")
    (one,) = choose_participants([Member(node="a")], [closed], even_busy=True)
    assert one.gpus == (0, 1)
    broken = availability("a", problem=Problem(kind=Kind.NO_STATE, cause="its state is gone"))
    with pytest.raises(RefusedError):
        choose_participants([Member(node="a")], [broken], even_busy=True)
