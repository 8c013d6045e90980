"""Check 7: the card is the one that NVML names, and as fast as its data sheet says."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.findings import Bench, Item, failed, judged, skipped
from tests.gpu.ranks import Case, run_cases

LEAST_OF_PEAK, MOST_OF_PEAK = 0.6, 1.02
"""A matrix product reaches 700 to 900 of an H200's 989 TFLOP/s."""


def check_card(bench: Bench) -> Iterator[Item]:
    if not bench.is_real:
        yield skipped("the card", "needs a GPU")
        return
    answer = run_cases(bench, [_case("card", measures=True)])["card"]
    if answer.error:
        yield failed("the card", answer.error)
        return
    told = answer.first
    tflops = told["gemm"] / 1e12
    if told["peak"] is None:
        yield judged("8192³ in bfloat16; no data sheet for this card", None, tflops=tflops)
    else:
        share = told["gemm"] / told["peak"]
        is_so = LEAST_OF_PEAK <= share <= MOST_OF_PEAK
        problem = None if is_so else f"{share:.0%} of the data sheet's {told['peak'] / 1e12:.0f}"
        yield judged("8192³ in bfloat16", problem, tflops=tflops, of_data_sheet=share)
    uuid = told["uuid"]
    is_known = uuid in told["nvml_uuids"]
    problem = None if is_known else f"torch says {uuid}, NVML {', '.join(told['nvml_uuids'])}"
    yield judged("NVML's UUID is torch's", problem, uuid=uuid)
    yield _by_uuid(bench, uuid)


def _by_uuid(bench: Bench, uuid: str) -> Item:
    name = "a rank that gets its card by UUID"
    environment = {"CUDA_VISIBLE_DEVICES": uuid}
    answer = run_cases(bench, [_case("card", measures=False)], environment=environment)["card"]
    if answer.error:
        return failed(name, answer.error)
    told = answer.first
    is_so = told["uuid"] == uuid and told["count"] == 1
    return judged(name, None if is_so else f"it sees {told['count']} cards, first {told['uuid']}")


def _case(name: str, *, measures: bool) -> Case:
    return {"name": name, "kind": "card", "measures": measures}
