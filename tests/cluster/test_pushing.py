"""Large files on three real agents: from here, from a node, gone on with, refused, and deleted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.files.hub_models import bring_hub_model
from jupyter_mntrain.launch.files.hub_names import HubId
from jupyter_mntrain.launch.files.manifest import read_manifest, transfer_of
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import Cleaned, Deposit, NodeSpace
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.recipe.stored import recipe_of
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.workload.workload import from_cell
from tests import trusted
from tests.agent.live import LiveAgent, free_port
from tests.cluster.conftest import wait_for
from tests.standin.hub import HubServer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

NAME = LargeName("models", "org/llama")
CONTENTS = {"weights.bin": os.urandom(21 << 20), "config.json": b"{}", "empty": b""}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("state")
    network = f"127.{120 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    made = []
    for number in (1, 2, 3):
        name, address = f"node{number}", f"{network}.{number}"
        made.append(LiveAgent(name, address, free_port(address), state / name, "test"))
    try:
        big = state / "big"
        big.mkdir()
        made[0].start()
        made[1].start("--root", f"models={big}")
        made[2].start()
        yield made
    finally:
        for agent in made:
            agent.end()


@pytest.fixture
def cluster(agents: list[LiveAgent]) -> Iterator[Cluster]:
    with Cluster("test", addresses=[agent.where for agent in agents]) as made:
        wait_for(lambda: [node.liveness for node in made.nodes()] == ["up"] * 3)
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "llama"
    made.mkdir()
    for name, content in CONTENTS.items():
        (made / name).write_bytes(content)
    return made


def place(agent: LiveAgent, name: LargeName) -> Path:
    if agent.name == "node2" and name.root == "models":
        return agent.state.parent / "big" / name.name
    return agent.state / "files" / name.root / name.name


def contents(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir()}


def test_a_folder_comes_to_all_nodes_and_the_source_sends_it_once(
    cluster: Cluster, agents: list[LiveAgent], folder: Path
) -> None:
    pushed = cluster.files.push(NAME, path=folder)
    assert sorted(pushed.nodes) == ["node1", "node2", "node3"], pushed.failed
    assert pushed.sent_bytes[""] == pushed.size_bytes
    assert sum(pushed.sent_bytes.values()) == 3 * pushed.size_bytes
    for agent in agents:
        assert contents(place(agent, NAME)) == CONTENTS
    again = cluster.files.push(NAME, path=folder)
    assert sorted(again.had) == ["node1", "node2", "node3"]
    assert again.sent_bytes == {}


def test_another_content_under_that_name_is_refused(cluster: Cluster, folder: Path) -> None:
    (folder / "config.json").write_bytes(b"[]")
    with pytest.raises(RefusedError):
        cluster.files.push(NAME, path=folder)


def test_a_node_gives_what_it_has_to_the_others(cluster: Cluster, agents: list[LiveAgent]) -> None:
    name = LargeName("data", "set.bin")
    place(agents[0], name).parent.mkdir(parents=True, exist_ok=True)
    place(agents[0], name).write_bytes(CONTENTS["weights.bin"])
    pushed = cluster.files.push(name, source="node1")
    assert sorted(pushed.nodes) == ["node2", "node3"], pushed.failed
    assert pushed.sent_bytes[""] == pushed.size_bytes
    for agent in agents:
        assert place(agent, name).read_bytes() == CONTENTS["weights.bin"]


def test_a_push_goes_on_after_an_agent_has_restarted(
    cluster: Cluster, agents: list[LiveAgent], folder: Path
) -> None:
    name, manifest = LargeName("data", "resumed"), read_manifest(folder)
    deposit = Deposit(root=name.root, name=name.name, manifest=manifest)
    agent = agents[2]
    assert agent.send("POST", "/v1/files/transfers", deposit).status_code == 200
    transfer = transfer_of(name.root, name.name, manifest)
    url = f"{agent.url}/v1/files/transfers/{transfer}/pieces/"
    weights = next(one for one in manifest.files if one.path == "weights.bin")
    assert weights.size_bytes > 2 * manifest.piece_bytes
    stream = b"".join(CONTENTS[one.path] for one in manifest.files)
    size, driver = manifest.piece_bytes, trusted.driver_context()
    wrong = httpx.put(f"{url}0", content=b"x" * size, verify=driver)
    assert wrong.status_code == 400
    for piece in (1, 3):
        part = stream[piece * size : (piece + 1) * size]
        assert httpx.put(f"{url}{piece}", content=part, verify=driver).status_code == 200
    agent.kill()
    agent.start()
    wait_for(lambda: [node.liveness for node in cluster.nodes()] == ["up"] * 3)
    pushed = cluster.files.push(name, ["node3"], path=folder)
    assert pushed.sent_bytes[""] == pushed.size_bytes - 2 * size
    assert contents(place(agent, name)) == CONTENTS


def test_a_node_may_fetch_only_what_a_driver_has_deposited_for_it(
    agents: list[LiveAgent], folder: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(folder)
    ours, other = Subject(role="node", name="ab" * 16), Subject(role="node", name="cd" * 16)
    deposit = Deposit(root="models", name=NAME.name, manifest=manifest, nodes=(ours.name,))

    def deposited() -> bool:
        answer = agents[0].send("POST", "/v1/files/transfers", deposit)
        return "is_done" in answer.text

    wait_for(deposited)
    path = f"/v1/files/transfers/{transfer_of(*NAME, manifest)}/pieces/0"
    for number, (subject, status) in enumerate(((ours, 200), (other, 403))):
        made = trusted.make_credentials(tmp_path / str(number), subject)
        with httpx.Client(verify=made.unnamed_client) as client:
            assert client.get(f"{agents[0].url}{path}").status_code == status
            assert client.get(f"{agents[0].url}/v1/files/space").status_code == 403


def test_a_piece_is_passed_on_while_it_comes(
    agents: list[LiveAgent], folder: Path, tmp_path: Path
) -> None:
    ours = Subject(role="node", name="ab" * 16)
    manifest = read_manifest(folder)
    deposit = Deposit(root="data", name="passed", manifest=manifest, nodes=(ours.name,))
    assert agents[0].send("POST", "/v1/files/transfers", deposit).status_code == 200
    transfer = transfer_of("data", "passed", manifest)
    url = f"{agents[0].url}/v1/files/transfers/{transfer}/pieces/0"
    piece = b"".join(CONTENTS[one.path] for one in manifest.files)[: manifest.piece_bytes]
    made = trusted.make_credentials(tmp_path / "node", ours)
    for is_whole in (False, True):
        is_passed_on, got = threading.Event(), bytearray()

        def sent(is_whole: bool = is_whole, passed_on: threading.Event = is_passed_on) -> Any:
            yield piece[:100_000]
            assert passed_on.wait(PATIENCE_S)
            if not is_whole:
                raise ConnectionAbortedError
            yield piece[100_000:]

        def read(got: bytearray = got, passed_on: threading.Event = is_passed_on) -> None:
            with (
                httpx.Client(verify=made.unnamed_client, timeout=PATIENCE_S) as node,
                node.stream("GET", url) as answer,
            ):
                for part in answer.iter_raw():
                    got += part
                    passed_on.set()

        with ThreadPoolExecutor(1) as threads:
            # It is asked for before anybody sends it, as drivers have it.
            reading = threads.submit(read)
            send = partial(
                httpx.put,
                url,
                content=sent(),
                headers={"Content-Length": str(len(piece))},
                verify=trusted.driver_context(),
                timeout=PATIENCE_S,
            )
            if is_whole:
                assert send().status_code == 200
                reading.result()
                assert got == piece
            else:
                with pytest.raises(ConnectionAbortedError):
                    send()
                with pytest.raises(httpx.RemoteProtocolError):
                    reading.result()
                assert piece.startswith(got)


def test_what_a_node_has_is_fetched_here(cluster: Cluster, tmp_path: Path) -> None:
    pulled = cluster.files.pull("node2", NAME, tmp_path / "here")
    assert contents(tmp_path / "here") == CONTENTS
    assert pulled.size_bytes == sum(map(len, CONTENTS.values()))
    assert not list(tmp_path.glob(".mntrain/*"))
    with pytest.raises(RefusedError):
        cluster.files.pull("node2", NAME, tmp_path / "here")
    with pytest.raises(RefusedError) as caught:
        cluster.files.pull("node2", LargeName("models", "absent"), tmp_path / "absent")
    assert caught.value.kind is Kind.NO_FILE


def test_a_link_out_of_the_root_is_neither_read_nor_written(
    cluster: Cluster, agents: list[LiveAgent], folder: Path, tmp_path: Path
) -> None:
    root = place(agents[0], NAME).parents[1]
    (root / "out").symlink_to(tmp_path)
    for name in ("out", "out/llama"):
        with pytest.raises(MntrainError):
            cluster.files.pull("node1", LargeName("models", name), tmp_path / "got")
    with pytest.raises(RefusedError):
        cluster.files.push(LargeName("models", "out/new"), ["node1"], path=folder)
    (root / "out").unlink()
    with pytest.raises(SpecError):
        cluster.files.push(LargeName("models", "../x"), path=folder)


def test_what_lies_on_nodes_is_listed_and_what_is_named_deleted(
    cluster: Cluster, agents: list[LiveAgent]
) -> None:
    space = cluster.files.space()["node2"]
    assert isinstance(space, NodeSpace)
    assert {one.what for one in space.things} >= {"models:org", "data:set.bin", "blobs"}
    old = place(agents[1], NAME).parents[1] / ".mntrain" / "old"
    (old / "tree").mkdir(parents=True)
    (old / "tree" / "part").write_bytes(b"x" * 9000)
    day_ago_s = time.time() - 2 * 86_400
    os.utime(old / "tree" / "part", (day_ago_s, day_ago_s))
    said = cluster.files.clean([NAME], ["node2"])["node2"]
    assert isinstance(said, Cleaned)
    assert [one.what for one in said.things] == ["incomplete old", str(NAME)]
    assert place(agents[1], NAME).exists()
    done = cluster.files.clean([NAME], ["node2"], is_trial=False)["node2"]
    assert msgspec.to_builtins(done) == msgspec.to_builtins(said)
    assert not place(agents[1], NAME).exists()
    assert not old.exists()
    assert place(agents[0], NAME).exists()


class Reports:
    """What a person is told meanwhile."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def report(self, what: str, _done: int, _total: int | None) -> None:
        self.seen.append(what)


def test_a_model_of_the_hub_is_fetched_once_and_comes_to_all_nodes(
    cluster: Cluster, agents: list[LiveAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2}
    config |= {"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    (folder / "model.safetensors").write_bytes(CONTENTS["weights.bin"])
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not for training")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    launcher, reports = cluster._driver.launcher(), Reports()

    def bring(spec: JobSpec, *nodes: str) -> None:
        infos = [agent.info() for agent in agents if agent.name in nodes]
        work = bring_hub_model(launcher.live, program_of(spec), infos, launcher.clock, reports)
        cluster._driver.loop.run(work)

    made = from_cell('[model]\npath = "org/tiny"\n', directory=tmp_path)
    participants = (Participant("node1"), Participant("node2"))
    spec = JobSpec(entry=made.entry, files=made.files, participants=participants)
    with HubServer({"org/tiny": folder}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        placed = cluster.with_hub_commit(spec)
        copy = HubId("org/tiny", hub.commit("org/tiny")).copy
        assert recipe_of(placed).model.path == str(copy)  # type: ignore[union-attr]
        assert hub.sent == {"org/tiny/config.json": 1}
        bring(placed, "node1", "node2")
        names = ("config.json", "model.safetensors", "tokenizer.json")
        assert hub.sent == {f"org/tiny/{name}": 1 for name in names}
    wanted = {one.name: one.read_bytes() for one in folder.iterdir() if one.name != "README.md"}
    for agent in agents[:2]:
        assert contents(place(agent, copy)) == wanted
    assert not place(agents[2], copy).exists()
    assert any(str(copy) in what for what in reports.seen), reports.seen

    # The job goes on elsewhere: neither the hub nor this machine's cache is there any more.
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    assert cluster.with_hub_commit(placed) == placed
    bring(placed, "node2", "node3")
    assert contents(place(agents[2], copy)) == wanted


WRITES = """
import os, pathlib, sys
rank, out = os.environ["RANK"], pathlib.Path(sys.argv[1])
print("run", os.environ["TORCHELASTIC_RUN_ID"])
(out / f"shard-{rank}.bin").write_bytes(bytes([int(rank)]) * 3_000_000)
(out / "config.json").write_text("{}")
pathlib.Path("log.txt").write_text(f"rank {rank}")
if rank == "0":
    pathlib.Path("away").symlink_to("/etc/hostname")
"""


def test_what_a_job_wrote_on_two_nodes_comes_home(cluster: Cluster, tmp_path: Path) -> None:
    places = (Participant(node="node1", nproc=1), Participant(node="node3", nproc=1))
    job = cluster.launch(
        JobSpec(entry=("w.py", "{out}"), files={"w.py": WRITES}, participants=places)
    )
    assert job.wait(PATIENCE_S).state == "succeeded"
    assert any(line.text.endswith(f"run {job.id}") for line in job.logs())
    written = cluster.files.of_job(job.view())
    assert written.paths == [
        "log.txt",
        "outputs/config.json",
        "outputs/shard-0.bin",
        "outputs/shard-1.bin",
    ]
    assert "away" in written.nodes["node1"].left_out
    pulled = cluster.files.pull_job(job.view(), tmp_path / "all")
    assert pulled.differ == ("log.txt",)
    assert (tmp_path / "all" / "node3" / "log.txt").read_text() == "rank 1"
    pulled = cluster.files.pull_job(job.view(), tmp_path / "home", "outputs")
    assert pulled.count == 3
    assert {one.name: one.stat().st_size for one in (tmp_path / "home").iterdir()} == {
        "config.json": 2,
        "shard-0.bin": 3_000_000,
        "shard-1.bin": 3_000_000,
    }
    assert (tmp_path / "home" / "shard-1.bin").read_bytes() == b"\1" * 3_000_000
    cluster.files.pull_job(job.view(), tmp_path / "log", "log.txt", rank=1)
    assert (tmp_path / "log").read_text() == "rank 1"
    with pytest.raises(RefusedError):
        cluster.files.pull_job(job.view(), tmp_path / "log", "log.txt", node="node1")
    cluster.files.clean([job.id], is_trial=False)
    assert cluster.files.of_job(job.view()).count == 0
