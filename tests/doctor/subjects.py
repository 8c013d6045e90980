"""What the doctor is to examine, point by point, and the checks that do it."""

from __future__ import annotations

from typing import Final

from tests.doctor.checklists import Item

SUBJECTS: Final[tuple[Item, ...]] = (
    Item("GPU driver: it answers, with the version of its library", ("gpu-driver", "gpu-answers")),
    Item("Fabric manager of NVSwitches", ("gpu-fabric",)),
    Item(
        "Persistence mode",
        ("gpu-compute-mode",),
        "only a word with `--all`: the agent keeps the driver loaded",
    ),
    Item("Errors of GPUs: Xid, ECC, rows to be replaced", ("gpu-xid", "gpu-memory-errors")),
    Item("Throttling, power limit, PCIe lanes", ("gpu-clocks", "gpu-power-limit", "gpu-pcie")),
    Item("GPUs among themselves: P2P, ACS, IOMMU", ("gpu-peers", "debug-variables")),
    Item("MIG, compute mode", ("gpu-answers", "gpu-compute-mode")),
    Item("Other programs on a GPU", ("gpu-users",)),
    Item(
        "torch, CUDA and NCCL as they are loaded",
        ("torch-import", "torch-version", "cuda-start", "cuda-architectures", "nccl-loaded"),
    ),
    Item(
        "Versions that agree: mntrain, torch, CUDA, NCCL, Python, transformers, architecture",
        ("versions", "nccl-loaded"),
        "a launch, a queued job and a restart compare those of the job's own interpreter",
    ),
    Item("User and group ids, paths that can be written", ("user-id", "writable-paths")),
    Item("Free disk for logs, checkpoints and output", ("disk-space",)),
    Item("Memory, /dev/shm", ("host-memory", "shared-memory")),
    Item(
        "Limits: files and their size, locked memory, core files",
        ("open-files", "file-size", "locked-memory", "core-files"),
    ),
    Item("Containers: init, shared memory", ("first-process", "shared-memory")),
    Item("Clock compared with the others'", ("clock",)),
    Item("Host name, 127.0.1.1, /etc/hosts, reverse DNS", ("host-name", "reverse-dns")),
    Item("CPU governor, cores compared with ranks", ("cpu-governor", "cores")),
    Item("What the kernel has logged", ("kernel-log", "gpu-xid")),
    Item(
        "Every address reachable, both ways: random port, rendezvous, range of ports; the firewall "
        "by its side",
        ("reachable", "rendezvous-port", "port-range"),
    ),
    Item("MTU of the path, with don't-fragment", ("path-mtu",)),
    Item(
        "Networks that all share, masks, addresses twice, routes",
        (
            *("shared-network", "fast-network", "subnet-mask", "address-twice", "route"),
            "network-address",
        ),
    ),
    Item(
        "The network card that is really used",
        ("route",),
        "while a job runs, by the counters of the interfaces",
    ),
    Item(
        "Duplex, speed compared with the nominal one, errors and drops, carrier",
        ("network-duplex", "network-speed", "network-errors", "network-carrier", "measured-link"),
    ),
    Item("Packets sent again under load", ("resent-packets",)),
    Item(
        "InfiniBand and RoCE: ports, NCCL_IB_HCA, GID, peer memory or dma-buf",
        ("rdma-ports", "adapter-names", "gpu-direct", "locked-memory"),
    ),
    Item("NCCL, Gloo and torch variables that differ", ("variables", "debug-variables")),
    Item("A wrong NCCL_SOCKET_IFNAME", ("interface-names",)),
    Item("A path that is a link here and absent there", ("job-paths",)),
    Item("GPUs, network cards and NUMA nodes placed unlike, NVLinks that are down", ("topology",)),
    Item("Firmware that differs: VBIOS, InfoROM, network cards, adapters", ("firmware",)),
    Item("Proxies", ("variables",)),
    Item("PYTHONPATH that differs", ("import-variables",)),
    Item(
        "Model, tokenizer, data and script on every node, modules that can be imported",
        ("job-paths", "whole-model", "imported-modules", "hub-files"),
    ),
    Item(
        "The launch itself: its options, the script's text, arguments, variables and files",
        ("launch", "script", "script-variables", "script-files", "script-gpus"),
    ),
    Item("The same content, by hash", ("same-files",)),
    Item("A dry first batch: one step of every stage with random tokens", ("deep-step",)),
)
