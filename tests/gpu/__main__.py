"""``scripts/gpu-check``: the GPU acceptance, in one command."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import report
from tests.gpu.acceptance import run_checks
from tests.gpu.checks import CHECKS
from tests.gpu.facts import no_card, read_facts
from tests.gpu.findings import Bench, Check, Finding
from tests.gpu.nodes import launch_between

NAME = "gpu-check"


def main() -> int:
    """Run the checks; 0 if none failed or there is no card, 1 if one failed, 2 for bad input."""
    arguments = _arguments()
    # So that what was started is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    checks = [one for one in CHECKS if arguments.only is None or one.number in arguments.only]
    if arguments.list:
        _list(checks)
        return 0
    if arguments.nodes:
        return launch_between(arguments.nodes, arguments.report, device=arguments.device)
    facts = read_facts()
    if "error" in facts:
        print(f"{NAME}: {facts['error']}", file=sys.stderr)
        return 2
    if arguments.device == "cuda" and (why := no_card(facts)):
        print(f"{NAME}: {why}. Nothing was run; --list names the checks.")
        return 0
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as directory:
        cards = len(facts["cards"]) if arguments.device == "cuda" else 0
        bench = Bench(
            arguments.device, cards, Path(directory), arguments.before, arguments.patience
        )
        return _run(checks, bench, facts, arguments.report)


def _run(checks: list[Check], bench: Bench, facts: dict[str, object], target: Path) -> int:
    begun = time.time()
    findings = run_checks(checks, bench, _tell)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(begun))
    title = f"GPU acceptance of jupyter_mntrain, {when}, {time.time() - begun:.0f} s\n"
    title += report.summary(findings)
    text = report.page(facts, findings, title=title)
    report.write(target, report.as_data(facts, findings, begun=begun, device=bench.device), text)
    print(f"\n{text}\nAlso in {target}/gpu-check.json and gpu-check.txt")
    return int(any(one.state == "failed" for one in findings))


def _tell(finding: Finding) -> None:
    print(
        f"{finding.number} {finding.state:<8}{finding.title}, {finding.seconds:.0f} s", flush=True
    )
    for item in finding.items:
        if item.state == "failed":
            print(f"          {item.name}: {item.reason}", flush=True)


def _list(checks: list[Check]) -> None:
    for check in checks:
        print(f"{check.number} {check.title}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"scripts/{NAME}",
        description="Try on this node's GPUs, within 10 minutes, what tests without one cannot "
        "show, and write a report. Without a GPU nothing is run.",
    )
    parser.add_argument("--list", action="store_true", help="name the checks, and run none")
    parser.add_argument("--only", type=_numbers, metavar="N,N", help="run these checks only")
    parser.add_argument(
        "--nodes",
        nargs="+",
        metavar="NODE",
        help="between these nodes of the cluster, each with all idle GPUs, or as NODE:gpu0,2: "
        "schedules and parallelism, as a job of mntrain launch",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("gpu-check"),
        metavar="DIR",
        help="gets gpu-check.json and gpu-check.txt; default: gpu-check",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--before", default="", help=argparse.SUPPRESS)
    parser.add_argument("--patience", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> set[int]:
    numbers = {int(one) for one in text.split(",")}
    known = {one.number for one in CHECKS}
    if not numbers <= known:
        raise argparse.ArgumentTypeError(f"checks are 0 to {max(known)}")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
