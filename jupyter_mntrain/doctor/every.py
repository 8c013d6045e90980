"""All checks, in the order in which they are listed, and the examination by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check
from jupyter_mntrain.doctor.environment.different import CommunicationVariables, ImportVariables
from jupyter_mntrain.doctor.environment.single import AdapterNames, DebugVariables, InterfaceNames
from jupyter_mntrain.doctor.finding import ORDER, Finding
from jupyter_mntrain.doctor.hardware.cores import CoresForRanks
from jupyter_mntrain.doctor.hardware.gpu_driver import AnsweringGpus, Fabric, WorkingDriver
from jupyter_mntrain.doctor.hardware.gpu_peers import GpuPeers
from jupyter_mntrain.doctor.hardware.gpu_settings import GpuComputeMode, GpuPcieLink, GpuPowerLimit
from jupyter_mntrain.doctor.hardware.gpu_state import (
    GpuClocks,
    GpuMemoryErrors,
    GpuUsers,
    XidErrors,
)
from jupyter_mntrain.doctor.hardware.kernel_log import KernelLog
from jupyter_mntrain.doctor.hardware.network_cards import (
    NetworkAddress,
    NetworkCarrier,
    NetworkDuplex,
    NetworkErrors,
    NetworkSpeed,
)
from jupyter_mntrain.doctor.hardware.rdma import GpuDirectRdma, RdmaPorts
from jupyter_mntrain.doctor.hardware.unlike import SameFirmware, SameTopology
from jupyter_mntrain.doctor.node.account import SharedAccount
from jupyter_mntrain.doctor.node.clock import ClockCheck
from jupyter_mntrain.doctor.node.disks import DiskSpace, WritablePaths
from jupyter_mntrain.doctor.node.limits import CoreFiles, FileSize, LockedMemory, OpenFileLimit
from jupyter_mntrain.doctor.node.memory import HostMemory, SharedMemorySize
from jupyter_mntrain.doctor.node.names import OwnName, PeerNames
from jupyter_mntrain.doctor.node.processors import FirstProcess, Governor
from jupyter_mntrain.doctor.pair.addresses import AddressTwice, SharedNetwork, SubnetMask
from jupyter_mntrain.doctor.pair.line_rates import MeasuredLinks, ResentPackets
from jupyter_mntrain.doctor.pair.path_mtu import PathMtu
from jupyter_mntrain.doctor.pair.reach import PortRange, ReachablePeers, RendezvousPort
from jupyter_mntrain.doctor.pair.routes import RouteToPeers
from jupyter_mntrain.doctor.pair.slow_network import UnusedFastNetwork
from jupyter_mntrain.doctor.software.agreeing_versions import AgreeingVersions
from jupyter_mntrain.doctor.software.cuda_loads import CudaArchitectures, CudaStart, NcclLoaded
from jupyter_mntrain.doctor.software.torch_loads import TorchImport, TorchVersion
from jupyter_mntrain.doctor.workload.contents import ImportedModules, SameContents, WholeModel
from jupyter_mntrain.doctor.workload.deep_step import DeepStep
from jupyter_mntrain.doctor.workload.hub_files import HubFiles
from jupyter_mntrain.doctor.workload.job_paths import JobPaths
from jupyter_mntrain.doctor.workload.scripts import (
    LaunchItself,
    ScriptFiles,
    ScriptGpus,
    ScriptText,
    ScriptVariables,
)

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
    DeepStep(),
    LaunchItself(),
    ScriptText(),
    ScriptVariables(),
    ScriptGpus(),
    ScriptFiles(),
)

OF_WAYS: Final = frozenset(check.id for check in EVERY if check.is_of_ways)


def examine(case: Case, checks: Iterable[Check] = EVERY) -> tuple[Finding, ...]:
    """What the checks say of a case, worst first."""
    found = [finding for check in checks for finding in check.findings(case)]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.level)))
