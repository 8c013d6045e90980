"""A real JupyterHub: two people on one machine, from the login to a job that outlives its server.

``python -m tests.hub`` installs the Hub, its proxy and its culler into ``build/hub`` at the first
time, starts them, and does what people do by their browsers. Nothing here is a stand-in; only the
logins have no passwords, and both people's servers run as this user, each with a home of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.hub.hub import FOLDER, Hub, Person, begin
from tests.waiting import PATIENCE_S, until

ADDRESS = "127.0.0.1"
CULLED_AFTER_S = 8

OUTLIVES = """%%mntrain launch --name outlives -- {out}
import pathlib, sys, time
from jupyter_mntrain import Recorder

out = pathlib.Path(sys.argv[1])
(out / "begun.txt").write_text("begun")
with Recorder() as recorder:
    while not (out / "end").exists():
        recorder.step(tokens=100, loss=1.0)
        time.sleep(0.1)
(out / "ended.txt").write_text("ended")"""


def check_the_page_has_its_part(_: Hub, people: list[Person]) -> None:
    for person in people:
        extensions = [one["name"] for one in person.config["federated_extensions"]]
        assert "jupyter-mntrain" in extensions, extensions
        assert person.get("status")["cluster"] == "default"


def check_requests_of_other_sites_are_refused(_: Hub, people: list[Person]) -> None:
    ada = people[0]
    without = {"Sec-Fetch-Mode": "cors"}
    asked = ada.browser.post(f"{ada.base}mntrain/v1/doctor", content=b"{}", headers=without)
    assert asked.status_code == 403, asked.text


def check_each_makes_the_machine_a_node(_: Hub, people: list[Person]) -> None:
    names = []
    for person in people:
        choice = {"listen": [ADDRESS], "without_systemd": True}
        answer = person.ask("POST", "own-machine/node", choice)
        assert answer.status_code == 201, answer.text
        names.append(answer.json()["name"])
        until(lambda person=person: liveness(person) == ["up"], f"the node of {person.name}")
    ports = {node_of(person)["view"]["address"] for person in people}
    assert len(ports) == 2, ports
    assert all(name.endswith(f"-{person.name}") for name, person in zip(names, people, strict=True))


def check_a_cell_launches_and_files_come_home(_: Hub, people: list[Person]) -> None:
    ada = people[0]
    with ada.kernel() as kernel:
        said = kernel.run("%load_ext jupyter_mntrain")
        assert "mntrain" in said, said
        said = kernel.run("%mntrain nodes")
        assert node_of(ada)["name"] in said, said
        said = kernel.run(OUTLIVES)
        until(lambda: [one["state"] for one in ada.get("jobs")] == ["running"], f"a job; {said}")
        (job,) = ada.get("jobs")
        assert job["job_id"] in said, said
        asyncio.run(_see_steps(ada, job["job_id"]))
        until(lambda: "outputs/begun.txt" in written(ada, job["job_id"]), "a file")
        of = f"path=outputs/begun.txt&node={job['placements'][0]['node']}"
        assert ada.ask("GET", f"jobs/{job['job_id']}/file?{of}").text == "begun"
        said = kernel.run(f"%mntrain pull {job['job_id']}:outputs")
        assert (ada.home / "outputs" / "begun.txt").read_text() == "begun", said


async def _see_steps(person: Person, job_id: str) -> None:
    page = await person.page()
    await page.next("snapshot")
    await page.watch(job_id)
    while not (await page.next("series"))["series"].get("job", {}).get("step"):
        pass
    await page.close()


def check_nobody_sees_what_is_the_others(_: Hub, people: list[Person]) -> None:
    ada, bob = people
    assert bob.get("jobs") == []
    answer = bob.browser.get(f"{ada.base}mntrain/v1/jobs")
    assert answer.status_code in (401, 403, 404), answer.text
    names = [one["name"] for one in bob.get("nodes")]
    assert names == [node_of(bob)["name"]]


def check_a_used_server_stays_and_an_idle_one_is_culled(hub: Hub, people: list[Person]) -> None:
    ada = people[0]
    (job,) = ada.get("jobs")
    asyncio.run(_stay_while_seen(hub, ada))
    with hub.culling(CULLED_AFTER_S):
        until(lambda: not hub.server_of(ada.name), "the idle server to be culled")
    ada.spawn()
    until(lambda: [one["state"] for one in ada.get("jobs")] == ["running"], "the job to be known")
    assert ada.get("jobs")[0]["job_id"] == job["job_id"]
    next(ada.home.glob(".local/state/mntrain/**/outputs")).joinpath("end").touch()
    until(lambda: ada.get("jobs")[0]["state"] == "succeeded", "the job to end")
    assert {"outputs/begun.txt", "outputs/ended.txt"} <= written(ada, job["job_id"])


async def _stay_while_seen(hub: Hub, person: Person) -> None:
    """An open page is activity, by which the Hub knows that somebody is there."""
    page = await person.page()
    await page.next("snapshot")
    before = hub.server_of(person.name)["last_activity"]
    async with asyncio.timeout(PATIENCE_S):
        while hub.server_of(person.name)["last_activity"] <= before:
            await page.next()  # nodes beat every second; a page that reads answers pings
    await page.close()


CHECKS: tuple[Callable[[Hub, list[Person]], None], ...] = (
    check_the_page_has_its_part,
    check_requests_of_other_sites_are_refused,
    check_each_makes_the_machine_a_node,
    check_a_cell_launches_and_files_come_home,
    check_nobody_sees_what_is_the_others,
    check_a_used_server_stays_and_an_idle_one_is_culled,
)


def liveness(person: Person) -> list[str]:
    return [one["view"]["liveness"] for one in person.get("nodes")]


def node_of(person: Person) -> dict[str, Any]:
    (node,) = person.get("nodes")
    return dict(node)


def written(person: Person, job_id: str) -> set[str]:
    nodes = person.get(f"jobs/{job_id}/files")["nodes"]
    return {one["path"] for node in nodes.values() for one in node.get("files", ())}


@contextmanager
def agents_ended(homes: Path) -> Iterator[None]:
    """The agents that outlive servers and the Hub end with this, and so do their jobs."""
    try:
        yield
    finally:
        for out in homes.glob("*/.local/state/mntrain/nodes/*/jobs/*/attempt-*/work/outputs"):
            (out / "end").touch()
        for owner in homes.glob("*/.local/state/mntrain/nodes/*/lock.owner"):
            agent = psutil.Process(int(owner.read_text().split()[0]))
            agent.terminate()
            agent.wait(PATIENCE_S)


def main() -> int:
    homes = FOLDER / "homes"
    hub = begin(homes)
    with agents_ended(homes), hub.running():
        people = [hub.log_in("ada"), hub.log_in("bob")]
        for check in CHECKS:
            check(hub, people)
            print("ok", check.__name__.removeprefix("check_").replace("_", " "), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
