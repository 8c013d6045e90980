"""Control plane: API server, controllers and the kubelets of all hosts, in one process.

``python -m tests.kubernetes_lab.control LAB FOLDER QUOTA``, in the network of the lab's first host.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests import netlab
from tests.kubernetes_lab.jobsets import JobSets
from tests.kubernetes_lab.kubelet import Kubelet
from tests.kubernetes_lab.kueue import Kueue
from tests.sources.kubernetes.api_server import serving

LOOK_EVERY_S = 0.1

QUEUE = "team-a"


async def main(lab: str, folder: Path, quota: int) -> None:
    first, *others = netlab.existing(lab).hosts
    async with serving(folder, first.management_address) as api:
        for host in others:
            api.put("nodes", kind="Node", metadata={"name": host.name}, status={"allocatable": {}})
        kueue, jobsets = Kueue(api, QUEUE, quota), JobSets(api, [host.name for host in others])
        kubelets = [Kubelet(api, host, folder) for host in others]
        print("up", flush=True)
        told = 0
        while True:
            kueue.look()
            jobsets.look()
            for kubelet in kubelets:
                kubelet.look()
            for line in api.log[told:]:
                print(line, flush=True)
            told = len(api.log)
            await asyncio.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
