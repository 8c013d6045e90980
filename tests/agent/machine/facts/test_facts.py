"""Machine facts: read from trees like the kernel's, and from this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine import facts
from jupyter_mntrain.agent.machine.facts import (
    MachineReader,
    container,
    find_path,
    first_process,
    mounts,
    read_processors,
    shown_environment,
    unreaped,
)
from jupyter_mntrain.model.records.doctor.machine import AskedPath, MachineQuestion
from jupyter_mntrain.telemetry.gpus import GpuReader


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def asked(path: Path | str) -> AskedPath:
    return AskedPath(use="data", path=str(path))


def test_this_machine_tells_all(tmp_path):
    reader = MachineReader(tmp_path / "jobs", GpuReader(""), environment={"NCCL_DEBUG": "INFO"})
    question = MachineQuestion(paths=(asked(tmp_path),), peers=("127.0.0.1", "not an address"))
    facts = reader.read(question)
    assert facts.uid == os.getuid()
    assert abs(facts.time_s - time.time()) < 60
    assert {one.use for one in facts.paths} >= {"jobs", "checkpoints", "shared memory", "data"}
    assert all(one.free_bytes is not None for one in facts.paths)
    assert [one.asked for one in facts.peer_names] == ["127.0.0.1"]
    assert facts.environment == {"NCCL_DEBUG": "INFO"}
    assert facts.first_process


def test_a_folder_a_file_and_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    types = {"/": "ext4", str(tmp_path): "nfs4"}
    folder = find_path(asked(tmp_path), types)
    assert (folder.kind, folder.is_writable, folder.file_system) == ("folder", True, "nfs4")
    assert find_path(asked(tmp_path / "file"), types).kind == "file"
    missing = find_path(asked(tmp_path / "a" / "b"), types)
    assert (missing.kind, missing.is_writable, missing.real_path) == ("missing", True, "")
    link = find_path(asked(tmp_path / "link"), types)
    assert (link.path, link.real_path) == (str(tmp_path / "link"), str(tmp_path.resolve()))


def test_a_loop_of_links_and_an_unknown_user_are_unreadable(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert find_path(asked(tmp_path / "a"), {}).kind in ("missing", "unreadable")
    assert find_path(asked("~nobody-of-that-name/x"), {}).kind == "unreadable"


def test_types_of_file_systems_are_those_of_the_last_mount(tmp_path):
    runs = "/my\\040runs"
    text = f"/dev/sda / ext4 rw 0 0\ns:/runs {runs} nfs4 rw 0 0\nx {runs} tmpfs rw 0 0\n"
    assert mounts(write(tmp_path, {"self/mounts": text})) == {"/": "ext4", "/my runs": "tmpfs"}
    assert mounts(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ""),
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods/burstable/pod1\n"}, "kubernetes"),
        ({"proc/1/cgroup": "12:cpu:/docker/0123\n"}, "docker"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, ""),
    ],
)
def test_containers_are_recognized(tmp_path, files, found):
    write(tmp_path, files)
    assert container(tmp_path, tmp_path / "proc") == found


def test_the_first_process_and_what_it_does_not_reap(tmp_path):
    stats = {
        "1/stat": "1 (sleep) S 0 1",
        "1/comm": "sleep\n",
        "7/stat": "7 (a (strange) name) Z 1 7",
        "8/stat": "8 (python) Z 7 8",
        "9/stat": "9 (python) S 1 9",
    }
    write(tmp_path, stats)
    assert (first_process(tmp_path), unreaped(tmp_path)) == ("sleep", 1)


def test_governors_and_their_driver(tmp_path):
    for cpu, governor in enumerate(("powersave", "performance", "powersave")):
        folder = f"devices/system/cpu/cpu{cpu}/cpufreq"
        files = {"scaling_governor": governor, "scaling_driver": "acpi-cpufreq"}
        write(tmp_path, {f"{folder}/{name}": text + "\n" for name, text in files.items()})
    found = read_processors(4.0, tmp_path)
    assert (found.governors, found.driver) == (("performance", "powersave"), "acpi-cpufreq")
    assert read_processors(4.0, tmp_path / "none").governors == ()


def test_only_what_training_depends_on_leaves_the_machine_without_passwords():
    environment = {
        "NCCL_SOCKET_IFNAME": "eth0",
        "https_proxy": "http://ann:secret@proxy:3128",
        "HF_TOKEN": "hf_1",
        "TORCH_SECRET": "s",
        "AWS_SECRET_ACCESS_KEY": "k",
        "HOME": "/home/ann",
    }
    assert shown_environment(environment) == {
        "NCCL_SOCKET_IFNAME": "eth0",
        "https_proxy": "http://***@proxy:3128",
    }


def test_a_name_server_that_hangs_is_given_up(monkeypatch):
    released = []

    def hang(address):
        while not released:
            time.sleep(0.01)
        raise OSError

    monkeypatch.setattr(facts, "PATIENCE_S", 0.1)
    monkeypatch.setattr(facts.socket, "gethostbyaddr", hang)
    (found,) = facts.look_up_address(["10.0.0.1"])
    released.append(True)
    assert (found.is_over, found.found) == (False, ())


def test_what_a_job_writes_to_is_tried_without_leaving_anything(tmp_path: Path) -> None:
    found = find_path(AskedPath(use="output", path=str(tmp_path)), {})
    assert (found.refused, found.is_read_only, found.is_writable) == ("", False, True)
    assert list(tmp_path.iterdir()) == []
