"""``python -m tests.netlab up N | exec HOST CMD… | status | down``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.netlab.commands import LabError
from tests.netlab.host import DATA, MANAGEMENT
from tests.netlab.lab import MOST_HOSTS, Lab, existing
from tests.netlab.requirements import missing, missing_tools

PREFIX = "netlab"
"""A person's own lab: it stays until it is taken down; tests use other names."""

CANNOT = 2


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    # The kernel is only tried when something is to be made.
    why_not = missing() if arguments.verb == "up" else missing_tools()
    if why_not is not None:
        return _complain(why_not)
    try:
        return _do(arguments)
    except LabError as error:
        return _complain(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.netlab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make N hosts, node1 to nodeN")
    up.add_argument("count", type=int, metavar="N", help=f"1 to {MOST_HOSTS}")
    run = verbs.add_parser("exec", help="run a command on a host")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    verbs.add_parser("status", help="hosts, addresses, traffic, processes")
    verbs.add_parser("down", help="end everything")
    return parser


def _do(arguments: argparse.Namespace) -> int:
    lab = existing(PREFIX)
    if arguments.verb == "up":
        if lab.hosts:
            return _complain(f"{len(lab.hosts)} hosts are up. Fix: python -m tests.netlab down")
        lab.down()  # what a broken start left
        return _show(Lab(arguments.count, PREFIX).up())
    if arguments.verb == "down":
        lab.down()
        return 0
    if not lab.hosts:
        return _complain("there is none. Fix: python -m tests.netlab up 3")
    if arguments.verb == "status":
        return _show(lab)
    return _exec(lab, arguments.host, arguments.command)


def _exec(lab: Lab, host: str, words: list[str]) -> int:
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        return _complain(f"say what to run on {host}")
    code = subprocess.call(lab.host(host).command(words))
    # As shells report a program that a signal ended.
    return code if code >= 0 else 128 - code


def _show(lab: Lab) -> int:
    for host in lab.hosts:
        try:
            running = f"{len(host.pids())} processes"
        except LabError:
            running = "no power"
        print(
            f"{host.name}  {_interface(lab, host.name, MANAGEMENT, '100 Mbit/s')}  "
            f"{_interface(lab, host.name, DATA, '1 Gbit/s')}  {running}  HOME {host.home}"
        )
    return 0


def _interface(lab: Lab, name: str, interface: str, rate: str) -> str:
    host = lab.host(name)
    address = host.management_address if interface == MANAGEMENT else host.data_address
    sent, received = host.counters(interface)
    return f"{interface} {address} ({rate}, sent {sent / 1e6:.1f} MB, got {received / 1e6:.1f} MB)"


def _complain(why: str) -> int:
    sys.stderr.write(f"netlab: {why}\n")
    return CANNOT


if __name__ == "__main__":
    sys.exit(main())
