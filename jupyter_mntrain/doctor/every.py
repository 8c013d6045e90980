"""The list of all checks, in the order in which they are shown, and a function that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import ORDER, Case, Check, Finding
from jupyter_mntrain.doctor.environment import (
    AdapterNames,
    CommunicationVariables,
    DebugVariables,
    ImportVariables,
    InterfaceNames,
)
from jupyter_mntrain.doctor.gpus import (
    AnsweringGpus,
    CoresForRanks,
    Fabric,
    GpuClocks,
    GpuComputeMode,
    GpuMemoryErrors,
    GpuPcieLink,
    GpuPeers,
    GpuPowerLimit,
    GpuUsers,
    WorkingDriver,
    XidErrors,
)
from jupyter_mntrain.doctor.hardware import KernelLog, SameFirmware, SameTopology
from jupyter_mntrain.doctor.network_cards import (
    GpuDirectRdma,
    NetworkAddress,
    NetworkCarrier,
    NetworkDuplex,
    NetworkErrors,
    NetworkSpeed,
    RdmaPorts,
)
from jupyter_mntrain.doctor.node import (
    ClockCheck,
    CoreFiles,
    DiskSpace,
    FileSize,
    FirstProcess,
    Governor,
    HostMemory,
    LockedMemory,
    OpenFileLimit,
    OwnName,
    PeerNames,
    SharedAccount,
    SharedMemorySize,
    WritablePaths,
)
from jupyter_mntrain.doctor.pair import (
    AddressTwice,
    MeasuredLinks,
    PathMtu,
    PortRange,
    ReachablePeers,
    RendezvousPort,
    ResentPackets,
    RouteToPeers,
    SharedNetwork,
    SubnetMask,
    UnusedFastNetwork,
)
from jupyter_mntrain.doctor.software import (
    AgreeingVersions,
    CudaArchitectures,
    CudaStart,
    NcclLoaded,
    TorchImport,
    TorchVersion,
)
from jupyter_mntrain.doctor.workload.contents import ImportedModules, SameContents, WholeModel
from jupyter_mntrain.doctor.workload.hub_files import HubFiles
from jupyter_mntrain.doctor.workload.job_paths import JobPaths
from jupyter_mntrain.doctor.workload.scripts import (
    LaunchItself,
    ScriptFiles,
    ScriptGpus,
    ScriptText,
    ScriptVariables,
)
from jupyter_mntrain.doctor.workload.smoke_step import SmokeStep

EVERY: Final[Sequence[Check]] = (
    WritablePaths(),
    DiskSpace(),
    HostMemory(),
    SharedMemorySize(),
    OpenFileLimit(),
    FileSize(),
    LockedMemory(),
    CoreFiles(),
    FirstProcess(),
    Governor(),
    ClockCheck(),
    OwnName(),
    PeerNames(),
    SharedAccount(),
    WorkingDriver(),
    AnsweringGpus(),
    Fabric(),
    XidErrors(),
    GpuMemoryErrors(),
    GpuUsers(),
    GpuComputeMode(),
    GpuClocks(),
    GpuPowerLimit(),
    GpuPcieLink(),
    GpuPeers(),
    CoresForRanks(),
    KernelLog(),
    NetworkAddress(),
    NetworkDuplex(),
    NetworkSpeed(),
    NetworkErrors(),
    NetworkCarrier(),
    RdmaPorts(),
    GpuDirectRdma(),
    SameFirmware(),
    SameTopology(),
    SharedNetwork(),
    UnusedFastNetwork(),
    SubnetMask(),
    AddressTwice(),
    ReachablePeers(),
    PortRange(),
    RendezvousPort(),
    PathMtu(),
    RouteToPeers(),
    ResentPackets(),
    MeasuredLinks(),
    AgreeingVersions(),
    TorchImport(),
    TorchVersion(),
    CudaStart(),
    CudaArchitectures(),
    NcclLoaded(),
    CommunicationVariables(),
    ImportVariables(),
    DebugVariables(),
    AdapterNames(),
    InterfaceNames(),
    JobPaths(),
    WholeModel(),
    SameContents(),
    ImportedModules(),
    HubFiles(),
    SmokeStep(),
    LaunchItself(),
    ScriptText(),
    ScriptVariables(),
    ScriptGpus(),
    ScriptFiles(),
)

OF_WAYS: Final = frozenset(check.id for check in EVERY if check.is_of_ways)


def examine(case: Case, checks: Iterable[Check] = EVERY) -> tuple[Finding, ...]:
    """Run the checks on a case and return their findings, worst first."""
    found = [finding for check in checks for finding in check.findings(case)]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.level)))
