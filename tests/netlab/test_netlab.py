"""Simulated cluster: it is what the other tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.netlab import DATA, Lab, LabError, existing, missing, own_lab
from tests.netlab.requirements import missing_tools
from tests.waiting import until

needs_a_lab = pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}")


def test_a_person_without_root_or_tools_is_told_what_to_do():
    assert "Fix: run it as root" in str(missing_tools(euid=1000))
    without_tc = missing_tools(euid=0, which=lambda tool: None if tool == "tc" else tool)
    assert without_tc == "no tc here. Fix: apt-get install iproute2"


@pytest.mark.netlab
@needs_a_lab
def test_hosts_are_machines_of_their_own():
    with own_lab(2) as lab:
        one, two = lab.hosts
        assert one.run(["hostname"]).stdout.strip() == "node1"
        assert one.run(["bash", "-c", "echo $HOME"]).stdout.strip() == str(one.home)
        assert one.run(["ls", "/sys/class/net"]).stdout.split() == [
            "docker0", "eth0", "eth1", "lo",
        ]  # fmt: skip
        sleeper = one.popen(["sleep", "600"])
        # It is nsenter, env and setpriv before it is that.
        until(lambda: "sleep" in one.run(["ps", "-e"]).stdout, "it to run")
        assert "sleep" not in two.run(["ps", "-e"]).stdout
        one.power_cut()
        assert sleeper.wait(10) != 0
        with pytest.raises(LabError, match="no power"):
            one.run(["true"])


@pytest.mark.netlab
@needs_a_lab
def test_two_labs_never_touch_each_other_and_leave_nothing():
    with own_lab(1) as one, own_lab(2) as two:
        assert [len(lab.hosts) for lab in (one, two)] == [1, 2]
        one.down()
        assert two.host("node2").run(["true"]).returncode == 0
        prefixes = one.prefix, two.prefix
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert not any(prefix in left.stdout for prefix in prefixes)


@pytest.mark.netlab
@needs_a_lab
def test_a_lab_that_was_made_before_is_found_with_its_hosts():
    with own_lab(2) as lab:
        found = existing(lab.prefix)
        assert [host.name for host in found.hosts] == ["node1", "node2"]
        assert found.host("node2").run(["hostname"]).stdout.strip() == "node2"
        with pytest.raises(LabError, match="no host 'node9'"):
            found.host("node9")


@pytest.mark.netlab
@needs_a_lab
def test_signals_reach_the_process_and_links_go_down():
    with own_lab(1) as lab:
        host = lab.hosts[0]
        program = host.popen(["sleep", "600"], stdout=subprocess.DEVNULL)
        while not any("sleep" in _command(pid) for pid in host.pids()):
            assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) != 0
        host.set_link(DATA, is_up=False)
        assert "DOWN" in host.run(["ip", "-br", "link", "show", DATA]).stdout


def test_too_many_hosts_are_refused_before_anything_is_made():
    with pytest.raises(LabError, match="choose 1 to 200"):
        Lab(201, "big").up()


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return os.devnull
