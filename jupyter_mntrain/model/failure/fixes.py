"""Fixes: what to do about a failure, a stall or a doubt. One table, by kind. Pure.

``tests/faults/test_fixes.py`` tries them: it does what the sentence says, and the job succeeds.
"""

from __future__ import annotations

from jupyter_mntrain.model.failure.kinds import Kind

_AGAIN = "launch it again, or use --restarts to do that automatically"

FIXES: dict[Kind, str] = {
    Kind.GPU_OUT_OF_MEMORY: "use more and smaller microbatches, or fewer layers on that node "
    "(pipeline.split)",
    Kind.OUT_OF_MEMORY: "use fewer processes there or a smaller batch; 'nodes' shows its memory",
    Kind.KILLED: "see dmesg and journalctl on that node for what sent the signal",
    Kind.TERMINATED: "see journalctl on that node, and check for a scheduler's time limit",
    Kind.CRASHED: "see where it crashed in its stacks; if that is in a library, compare the "
    "versions under 'nodes': a package built for another torch can cause this",
    Kind.CRASHED_AT_END: "end the script with torch.distributed.barrier() and "
    "destroy_process_group(): what is still open then can crash",
    Kind.DISK_FULL: "free some space on that node, or raise the quota; df -h and df -i show what "
    "is full: space, or the number of files",
    Kind.READ_ONLY: "on that node, remount it writable; if the kernel made it read-only, check "
    "its disk with dmesg",
    Kind.DISK_ERROR: "check dmesg and the disk, or the file server, of that node",
    Kind.FILE_TOO_LARGE: "raise the limit on that node (ulimit -f), or write smaller files",
    Kind.TOO_MANY_PROCESSES: "raise the limit on that node (ulimit -u; TasksMax= in a service; "
    "--pids-limit of a container), or use fewer threads and data loader workers",
    Kind.TOO_MANY_FILES: "raise the limit on that node (ulimit -n; LimitNOFILE= in a service), or "
    "use fewer data loader workers",
    Kind.SHARED_MEMORY: "make /dev/shm larger on that node (docker run --shm-size=8g), or use "
    "fewer data loader workers",
    Kind.WORKER_DIED: "see dmesg on that node: it probably ran out of memory or of /dev/shm; use "
    "fewer workers",
    Kind.COLLECTIVE_MISMATCH: "have every rank make the same calls in the same order, with tensors "
    "of the same shape and dtype: look for an `if rank == …`, fewer or smaller batches, or an "
    "error that one rank caught",
    Kind.NCCL: "read the NCCL WARN lines in 'logs'; --env NCCL_DEBUG=INFO has NCCL say more",
    Kind.GPU_ERROR: "check nvidia-smi and dmesg on that node; --env CUDA_LAUNCH_BLOCKING=1 shows "
    "the line of the script",
    Kind.GPU_ALLOCATOR: "have torch allocate without expandable segments: "
    "--env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False (PYTORCH_ALLOC_CONF since torch 2.10)",
    Kind.NO_ROUTE: "check that the ranks' interfaces share a subnet, and the routes of that node "
    "(ip route)",
    Kind.NO_DOWNLOAD: "check the name, and that node's access to the internet; or download it "
    "once, and give its path",
    Kind.NO_MODULE: "install {what} on that node; if it is a file of yours, send it with --file",
    Kind.NO_FILE: "put it on every node at the same path, or send a small file with --file",
    Kind.NO_PERMISSION: "give the agent's user permission to read and write it",
    Kind.NO_INTERFACE: "choose another interface for that node: --member NODE:N:IFACE",
    Kind.NO_CUDA: "see 'nodes': without a GPU there, use the CPU (and gloo, not nccl); with one, "
    "check nvidia-smi, and install a torch that is built for CUDA",
    Kind.NO_GPU_KERNEL: "install a torch that is built for the GPUs of that node",
    Kind.OLD_DRIVER: "update the NVIDIA driver of that node, or install an older torch",
    Kind.OWN_PORT_TAKEN: "give each rank of a node a port of its own, like port + LOCAL_RANK, or "
    "choose one that no program uses",
    Kind.PORT_TAKEN: "another program uses it: launch again without --port, or with --restarts",
    Kind.KEEPER_LOST: _AGAIN,
    Kind.MACHINE_RESTARTED: _AGAIN,
    Kind.NOT_STARTED: "check the interpreter of that node's agent: mntrain agent run --python PATH",
    Kind.NO_STATE: "mount or restore it and make it writable; if it is lost, join again with: "
    "mntrain agent join TOKEN",
    Kind.NO_RECORD: "launch it again; end processes of the job that are left there",
    Kind.WAITED_TOO_LONG: "launch it again with a longer --queue-limit, or once that is free",
    Kind.NODE_LOST: "'nodes' shows why; once the node is back the job goes on, or begins again "
    "with --restarts",
    Kind.TIME_LIMIT: "go on in a new allocation: 'resume', with a longer --time",
    Kind.PREEMPTED: "go on in a new allocation: 'resume'; the administrators know which queue is "
    "not preempted",
    Kind.NODES_TAKEN: "ask the administrators if nobody of you ended it; go on in a new "
    "allocation: 'resume'",
    Kind.ENDED_EARLY: "check why its loop ended before the others': it may have had fewer batches",
    Kind.UNKNOWN_CAUSE: "measure the links, and read the other ranks' logs; --restarts continues "
    "by itself",
    Kind.CONNECTION_BROKE: "check cables, switch ports, firewalls and other traffic of that "
    "network; with --restarts and --on-stall abort the job continues by itself",
    Kind.ADDRESS_CHANGED: "give {interface} a fixed address (or a longer DHCP lease), then launch "
    "again",
    Kind.DUPLICATE_ADDRESS: "find the other machine that has the address {address}, by its MAC "
    "address {mac}, and give it another one",
    Kind.GPU_LOST: "check that GPU's power and slot, and dmesg for Xid, on {node}; restart that "
    "machine, or launch without that GPU: --member NODE:gpu0,2",
    Kind.GPU_MEMORY_ERROR: "on {node}: nvidia-smi --gpu-reset -i {gpu}, or restart it; if it comes "
    "back, have that GPU replaced",
    Kind.LINK_DOWN: "check its cable and its switch port, or on {node}: ip link set {interface} up",
    Kind.LINK_BLOCKED: "check the switch and the firewalls between them, then measure the links",
    Kind.ONE_WAY_LINK: "let {node} connect to {peer} on all high ports",
    Kind.MTU_TOO_LARGE: "on {node} and {peer}: ip link set {interface} mtu 1500",
    Kind.CONNECTION_LOST: "read the other nodes' logs: the rank that closed the connection "
    "failed first",
    Kind.EXCEPTION: "see the whole traceback with 'logs', and correct the script or its data",
    Kind.EXIT_CODE: "use 'logs' to see what it printed before it ended",
    Kind.TIMED_OUT: "read the other ranks' logs to see what they were doing, and measure the "
    "links; if they only needed longer, raise the time-out (a recipe's train.timeout_s)",
    Kind.STOPPED: "on {node}: kill -CONT {pid}",
    Kind.IN_KERNEL: "check dmesg and the mounts of {node}",
    Kind.BUSY: "check that rank's stack: it is stuck there, or in an unusually long step",
    Kind.NO_PROGRESS: "read their logs; ranks that use a Recorder can be asked for their stacks",
    Kind.ALL_WAIT: "{call}",
    Kind.LOSS_NAN: "lower the learning rate, and check the data of step {step}",
    Kind.LOSS_DIVERGED: "lower the learning rate, and check the data before step {step}",
    Kind.LOSS_CONSTANT: "check that optimizer.step() is called, that the learning rate is not 0, "
    "and that each step gets a new batch",
    Kind.ZERO_GRADIENTS: "check that the loss depends on the weights (requires_grad, detach, "
    "no_grad), and that not every label is masked",
    Kind.RANKS_NEVER_MET: "call torch.distributed.init_process_group() without rank and "
    "world_size, so that it takes them from the environment, and wrap the model, as in "
    "DistributedDataParallel; in Lightning, give Trainer num_nodes= and devices=",
    Kind.TRACEBACK: "see its log; a script that catches an exception and cannot go on must raise "
    "it again, or exit with another code",
    Kind.SLOW_RANK: "see what it does with 'stacks', and compare the machine's clocks and "
    "temperatures",
    Kind.LINK_SLOW: "check the speed its ports agreed on (ethtool), its switch, and limits set "
    "with tc; measure the links again",
    Kind.SLOW_DISK: "check that disk or file server: iostat -x 1, nfsiostat, dmesg",
    Kind.SLOW_LOADER: "see what its loader waits for: a disk, a download or a lock; or use more "
    "workers",
    Kind.SLOW_JOB: "see where the ranks are with 'stacks', and what else the machines do",
    Kind.BEGAN_AGAIN: "save checkpoints to $MNTRAIN_CHECKPOINT_DIR, load the newest one at the "
    "start, and report its step: recorder.step(step=…); see docs/own_scripts.md",
}
"""Names in braces are facts: ``{what}`` is the name in another program's message, ``{call}`` what
:mod:`model.failure.sites` says of the place where ranks wait."""

SPECIAL: dict[tuple[Kind, str], str] = {
    (Kind.GPU_OUT_OF_MEMORY, "shared"): "end that process on {node}, or choose other GPUs: "
    "--member NODE:gpu0,2",
    (Kind.NO_CUDA, "vendor"): "install a torch built for CUDA on {node}",
    (Kind.OLD_DRIVER, "planned"): "update the NVIDIA driver of {node} {update}, or install a torch "
    "built for CUDA {cuda} on every node",
    (Kind.NOT_STARTED, "allocation"): "see the log of the allocation in {folder}",
    (Kind.NO_FILE, "outside"): "name such files with --file, or put them on every node",
    (
        Kind.NO_FILE,
        "earlier",
    ): "have the script save what a restart needs on storage that all nodes share",
    (Kind.NO_FILE, "left out"): "{path} was not sent, since .gitignore or .mntrainignore names it: "
    "launch with the line !{path} in .mntrainignore, or with --file {path}",
    (Kind.NO_FILE, "unsent"): "ranks run in a copy of what was sent, and {path} is not in it: "
    "launch with --file {path}, or with --project for its whole folder; if the script writes it, "
    "have it make the folder first",
    (Kind.NO_FILE, "script"): "send it with --file, or give its full path",
    (Kind.NO_MODULE, "interpreter"): "install it there: {python} -m pip install {package}",
    (Kind.WAITED_TOO_LONG, "lost"): "start that node again, then: mntrain resume {job}; "
    "--min-nodes lets a job continue without it",
    (Kind.KILLED, "wished"): _AGAIN,
    (
        Kind.LINK_DOWN,
        "unstable",
    ): "exchange the cable of {interface} on {node}, or use another port of "
    "the switch; if that does not help, another card",
    (Kind.LINK_DOWN, "gone"): "check the card and its driver on {node}, then launch again",
    (Kind.SLOW_RANK, "line"): "look at that line: it takes longer than it did, or does more",
    (Kind.SLOW_RANK, "throttled"): "raise the CPU limit of its container or service (cpu.max, "
    "CPUQuota)",
    (Kind.SLOW_RANK, "stopped"): "find what stops and continues it: a job scheduler, a debugger or "
    "cpulimit",
    (Kind.SLOW_RANK, "swapped"): "free memory on that node: end other programs, or use smaller "
    "microbatches",
    (Kind.SLOW_RANK, "starved"): "look for a CPU limit on it (cpu.max, CPUQuota, cpulimit), for "
    "ranks on the same core (taskset -p), and for other containers or virtual machines on that "
    "host",
    (Kind.SLOW_RANK, "competitor"): "end that process, move it, or lower its priority with renice",
    (
        Kind.SLOW_RANK,
        "crowded",
    ): "see with top what else runs there, and end it, move it, or lower its priority with renice",
    (Kind.SLOW_RANK, "clock"): "check the cooling, the power supply and the power profile of that "
    "machine",
    (Kind.SLOW_RANK, "gpu"): "check the cooling and the power supply of that machine: "
    "nvidia-smi -q -d PERFORMANCE",
    (Kind.LINK_SLOW, "resent"): "check its cables, its switch ports, and for a policer or an "
    "overloaded switch",
    (Kind.LINK_SLOW, "traffic"): "see what it is (on {node}: iftop -i {interface}); move it to "
    "another network or time",
    (Kind.BEGAN_AGAIN, "trainer"): "set checkpoint.interval_steps to fewer steps",
    (Kind.BEGAN_AGAIN, "saved"): "load the checkpoint of step {step} from "
    "$MNTRAIN_CHECKPOINT_DIR, and report its step: recorder.step(step=…); see docs/own_scripts.md",
}
"""Where more is known than the kind."""


def fix_of(kind: Kind, special: str = "", **facts: object) -> str:
    """The fix, with its facts.

    Args:
        special: what else is known; see :data:`SPECIAL`.
    """
    fix = SPECIAL[kind, special] if special else FIXES[kind]
    return fix.format(**facts)
