"""Large files in a simulated cluster: the source sends them once, whatever the number of nodes.
``bench`` there: a job over the data network, gone when it is over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.forking.python import forking_python
from tests.e2e.conftest import CLUSTER, invite, join, ours, up
from tests.netlab import DATA, MANAGEMENT, Host, Lab, missing, own_lab
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]

SIZE = 24 << 20

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "data:books"
sequence_length = 32
vocabulary_size = 257
[train]
steps = 2
batch_size = 4
[report]
to = []
"""
RATE = "rate 200mbit burst 256kb latency 50ms"


@pytest.fixture(scope="module")
def lab(mntrain: str) -> Iterator[Lab]:
    """Four hosts; the agents of three have joined, and node4 is the notebook's machine."""
    with own_lab(4) as made:
        driver = made.host("node4")
        token = invite(driver, mntrain, "--uses", "3")
        for host in made.hosts[:3]:
            # One keeps its data elsewhere: a recipe names it all the same.
            (host.home / "disk").mkdir()
            own = ["--root", f"data={host.home / 'disk'}"] if host.name == "node2" else []
            join(host, mntrain, token, *own)
        for interface in (DATA, MANAGEMENT):
            made.reshape(interface, RATE)
        until(lambda: len(up(driver, mntrain)) == 3, "three nodes to be up")
        yield made


def sent_bytes(host: Host) -> int:
    return sum(
        int(host.run(["cat", f"/sys/class/net/{one}/statistics/tx_bytes"]).stdout)
        for one in (DATA, MANAGEMENT)
    )


def found(host: Host, name: str) -> Path:
    (path,) = (one for one in host.home.rglob(name) if one.parent.name in ("models", "data"))
    return path


def test_a_model_comes_to_three_nodes_and_leaves_its_source_once(lab: Lab, mntrain: str):
    driver, nodes = lab.host("node4"), lab.hosts[:3]
    content = os.urandom(SIZE)
    (driver.home / "llama.bin").write_bytes(content)
    before = sent_bytes(driver)
    pushed = ours(driver, mntrain, "push", str(driver.home / "llama.bin"), timeout_s=120)
    assert sorted(pushed["nodes"]) == ["node1", "node2", "node3"]
    assert pushed["failed"] == {}
    assert sent_bytes(driver) - before < 1.3 * SIZE
    for host in nodes:
        assert found(host, "llama.bin").read_bytes() == content


def test_a_node_is_the_source_of_what_it_has(lab: Lab, mntrain: str):
    driver, source = lab.host("node4"), lab.host("node1")
    content = os.urandom(SIZE // 2)
    found(source, "llama.bin").with_name("other.bin").write_bytes(content)
    before = sent_bytes(source), sent_bytes(driver)
    pushed = ours(driver, mntrain, "push", "models:other.bin", "--from", "node1", timeout_s=120)
    assert sorted(pushed["nodes"]) == ["node2", "node3"]
    assert sent_bytes(source) - before[0] < 1.3 * len(content)
    assert sent_bytes(driver) - before[1] < 0.1 * len(content)
    for host in lab.hosts[1:3]:
        assert found(host, "other.bin").read_bytes() == content


def test_what_is_too_large_for_a_disk_is_not_sent(lab: Lab, mntrain: str):
    driver, full = lab.host("node4"), lab.host("node2")
    (driver.home / "big.bin").write_bytes(os.urandom(SIZE))
    models = str(found(full, "llama.bin").parent)
    done = full.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", models])
    assert done.returncode == 0, done.stderr
    before = sent_bytes(driver)
    try:
        words = [mntrain, "--cluster", CLUSTER, "--json", "push", str(driver.home / "big.bin")]
        done = driver.run(words)
        assert done.returncode == 4, done.stderr
        assert sent_bytes(driver) - before < 0.1 * SIZE
    finally:
        full.run(["umount", models])


def test_a_recipe_names_what_lies_elsewhere_on_each_node(lab: Lab, mntrain: str):
    driver = lab.host("node4")
    books, recipe = driver.home / "books", driver.home / "books.toml"
    books.mkdir()
    (books / "one.txt").write_text("A pipeline has stages, and a stage has layers. " * 400)
    recipe.write_text(RECIPE)
    ours(driver, mntrain, "push", str(books), "--to", "data:books", timeout_s=120)
    assert (lab.host("node2").home / "disk" / "books" / "one.txt").exists()
    words = ["launch", str(recipe), "--member", "node1:1", "--member", "node2:1", "--wait"]
    words += ["--python", forking_python()]
    assert ours(driver, mntrain, *words, timeout_s=240)["state"] == "succeeded"


MEMBERS = (f"node1:1:{DATA}", f"node2:1:{DATA}")


def test_two_nodes_are_timed_over_the_network_that_was_named(lab: Lab, mntrain: str):
    driver = lab.host("node4")
    jobs = ours(driver, mntrain, "jobs", "--all")
    words = [mntrain, "--cluster", CLUSTER, "--json", "bench", *MEMBERS, "--largest", "1 MiB"]
    words += ["--python", forking_python()]
    done = driver.run(words, timeout_s=180)
    # A busy machine may be slow, and then says so; what is slow is no business of this test.
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert "failure" not in report, report
    assert report["nodes"] == ["node1", "node2"]
    assert {one["operation"] for one in report["sizes"]} == {"send", "all_reduce", "all_gather"}
    fastest = max(one["bus_bytes_per_s"] for one in report["sizes"])
    assert 1e6 / 8 < fastest < 4e8 / 8, "the cable is shaped to 200 Mbit/s"
    assert all(one["latency_s"] > 0 for one in report["pairs"])

    def benched() -> set[tuple[str, str]]:
        return {
            (link["receiver"], interface["name"])
            for node in ours(driver, mntrain, "nodes")
            for interface in node["info"]["inventory"]["interfaces"]
            for link in interface.get("benched", ())
        }

    until(lambda: benched() == {("node1", DATA), ("node2", DATA)}, "the senders to keep it")
    assert ours(driver, mntrain, "jobs", "--all") == jobs, "it is none of them"
