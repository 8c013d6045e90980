"""Settings of the lab's SLURM."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from tests.netlab import Host

FAKE_GPUS = 4
"""Per node."""

CORES = 8
"""Per node, more than the machine has: most processes of a test wait."""

# Reasons, as measured with 22.05:
# cred_expire: a job that was requeued may start that long plus 1 s later; 120 s by default.
# proctrack, task, cgroup: control groups of this machine are not the lab's.
# config_overrides: nodes have more cores than the machine.
# SlurmdTimeout, KillWait: 300 and 30 s by default.
# MinJobAge: ended jobs are listed for that long.
_SETTINGS = """\
ClusterName=lab
SlurmctldHost={login}({address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmUser=root
SlurmctldPort=6817
SlurmdPort=6818
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,bf_resolution=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
PropagateResourceLimits=NONE
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100
PartitionName=short Nodes=ALL MaxTime=10 State=UP PriorityTier=10
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN PriorityTier=10
"""


def write_settings(folder: Path, login: Host, nodes: Sequence[Host]) -> None:
    """Write what all hosts read, and make the devices that stand for GPUs.

    Device nodes, as regular files are refused; jobs then have no ``CUDA_VISIBLE_DEVICES``.
    """
    for name in ("state", "gpus"):
        (folder / name).mkdir(mode=0o700)
    for index in range(FAKE_GPUS):
        os.mknod(folder / "gpus" / f"gpu{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    lines = [
        f"NodeName={node.name} NodeAddr={node.management_address} CPUs={CORES} RealMemory=4000 "
        f"Gres=gpu:fake:{FAKE_GPUS} State=UNKNOWN"
        for node in nodes
    ]
    for node in nodes:
        (folder / f"spool-{node.name}").mkdir()
    text = _SETTINGS.format(
        login=login.name,
        address=login.management_address,
        folder=folder,
        nodes="\n".join(lines),
    )
    (folder / "slurm.conf").write_text(text)
    devices = f"{folder}/gpus/gpu[0-{FAKE_GPUS - 1}]"
    (folder / "gres.conf").write_text(f"Name=gpu Type=fake File={devices}\n")
    # Without it slurmd 22.05 ends where no control groups are mounted, though nothing uses them.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
