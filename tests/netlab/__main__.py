"""``python -m tests.netlab up N | exec HOST CMD… | status | down``."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.netlab.lab import Lab, existing, missing

PREFIX = "netlab"
"""A person's own lab; tests use other names."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.netlab")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make N hosts, node1 to nodeN")
    up.add_argument("count", type=int)
    run = verbs.add_parser("exec", help="run a command on a host")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    verbs.add_parser("status", help="hosts, addresses, processes")
    verbs.add_parser("down", help="end everything")
    arguments = parser.parse_args()

    why_not = missing()
    if why_not is not None:
        sys.stderr.write(f"netlab: {why_not}\n")
        return 2
    if arguments.verb == "up":
        if not 1 <= arguments.count <= 200:
            sys.stderr.write(f"netlab: {arguments.count} hosts; choose 1 to 200\n")
            return 2
        lab = Lab(arguments.count, PREFIX).up()
        _show(lab)
        return 0
    lab = existing(PREFIX)
    if arguments.verb == "down":
        lab.down()
        return 0
    if not lab.hosts:
        sys.stderr.write("netlab: there is none. Fix: python -m tests.netlab up 3\n")
        return 2
    if arguments.verb == "status":
        _show(lab)
        return 0
    names = [host.name for host in lab.hosts]
    if arguments.host not in names or not arguments.command:
        sys.stderr.write(f"netlab: name one of {', '.join(names)} and a command\n")
        return 2
    command = lab.host(arguments.host).command(arguments.command)
    return subprocess.call(command)


def _show(lab: Lab) -> None:
    for host in lab.hosts:
        print(
            f"{host.name}  eth0 {host.management_address} (100 Mbit/s)  "
            f"eth1 {host.data_address} (1 Gbit/s)  {len(host.pids())} processes"
        )


if __name__ == "__main__":
    sys.exit(main())
