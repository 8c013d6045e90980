"""Fixes: what to do about a failure, a stall or a warning, as one table by kind. Pure.

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
    Kind.PACKAGE_CONFLICT: "install versions that fit together on that node: compare pip list "
    "there with a machine on which it works",
    Kind.NO_SHARED_LIBRARY: "install the package that has {what} on that node, or name its folder: "
    "--env LD_LIBRARY_PATH=PATH",
    Kind.NO_PROGRAM: "install {what} on that node; if it is installed, ranks do not find it on the "
    "agent's PATH: --env PATH=…",
    Kind.NO_FILE: "put it on every node at the same path, or send a small file with --file",
    Kind.DAMAGED_FILE: "copy or download it to that node again; if it is a checkpoint that was "
    "being saved, begin from an earlier one",
    Kind.OTHER_MODEL: "give it a checkpoint of this model, or build the model that the checkpoint "
    "is of: the same sizes, vocabulary and names (DistributedDataParallel adds module. to them)",
    Kind.PATH_TOO_LONG: "give the ranks a short folder for temporary files: --env TMPDIR=/tmp",
    Kind.NO_CREDENTIALS: "give the ranks the key or token of an account that may: --env NAME takes "
    "the variable NAME from here without showing it",
    Kind.UNTRUSTED_SERVER: "if a proxy of your network signs for others, name its authority: "
    "--env SSL_CERT_FILE=PATH and --env REQUESTS_CA_BUNDLE=PATH; otherwise update that node's "
    "certificates (certifi, ca-certificates)",
    Kind.NO_PERMISSION: "give the agent's user permission to read and write it",
    Kind.NO_INTERFACE: "choose another interface for that node: --member NODE:N:IFACE",
    Kind.NO_CUDA: "see 'nodes': without a GPU there, use the CPU (and gloo, not nccl); with one, "
    "check nvidia-smi, and install a torch that is built for CUDA",
    Kind.NO_GPU_KERNEL: "install a torch that is built for the GPUs of that node",
    Kind.OLD_DRIVER: "update the NVIDIA driver of that node, or install an older torch",
    Kind.OWN_PORT_TAKEN: "give each rank of a node a port of its own, like port + LOCAL_RANK, or "
    "choose one that no program uses",
    Kind.PORT_TAKEN: "another program uses it: launch again without --port, or with --restarts",
    Kind.SUPERVISOR_LOST: _AGAIN,
    Kind.MACHINE_RESTARTED: _AGAIN,
    Kind.NOT_STARTED: "check the interpreter of that node's agent: mntrain agent run --python PATH",
    Kind.NO_STATE: "mount or restore it and make it writable; if it is lost, join again with: "
    "mntrain agent join TOKEN",
    Kind.NO_RECORD: "launch it again; end processes of the job that are left there",
    Kind.WAITED_TOO_LONG: "launch it again with a longer --queue-limit, or once that is free",
    Kind.NODE_LOST: "'nodes' shows why; once the node is back the job goes on, or begins again "
    "with --restarts",
    Kind.TIME_LIMIT: "continue in a new allocation: 'resume', with a longer --time",
    Kind.PREEMPTED: "continue in a new allocation: 'resume'; the administrators know which queue "
    "is not preempted",
    Kind.NODES_TAKEN: "ask the administrators if none of you canceled it; continue in a new "
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
    Kind.NOISY_TRANSFERS: "compare the loss with that of a run without it, or send in more bits: "
    "resume it with --set pipeline.transfer=int8, or =none",
    Kind.RANKS_NEVER_MET: "call torch.distributed.init_process_group() without rank and "
    "world_size, so that it takes them from the environment, and wrap the model, as in "
    "DistributedDataParallel; in Lightning, give Trainer num_nodes={nodes} and devices={ranks}",
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
    (Kind.RANKS_NEVER_MET, "own torchrun"): "launch {script} itself, with its own arguments: this "
    "job starts torchrun on every node, and each rank starts another one",
    (Kind.GPU_OUT_OF_MEMORY, "shared"): "end that process on {node}, or choose other GPUs: "
    "--member NODE:gpu0,2",
    (Kind.OUT_OF_MEMORY, "limited"): "raise it on that node: ulimit -v unlimited in the shell that "
    "starts its agent, LimitAS=infinity in a service",
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
    (Kind.NO_FILE, "folder"): "have the script make the folder first, on every node: "
    "os.makedirs(…, exist_ok=True)",
    (Kind.NO_FILE, "weights"): "check the folder on that node: it has no weights in a format that "
    "the script reads, or they were not downloaded whole",
    (Kind.NO_MODULE, "not on path"): "{what} is there, in a folder in which Python does not look "
    "for modules: launch with --env PYTHONPATH={folder}",
    (Kind.NO_MODULE, "main"): "name the module in {what} that trains: --module {what}.NAME; python "
    "-m runs a package by its __main__.py alone",
    (Kind.NO_MODULE, "part"): "{what} is there, in another version than the script was written "
    "for: install that one; if {what} is yours, send its whole folder with --project",
    (Kind.NO_MODULE, "tokenizer"): "install what the tokenizer needs on that node: sentencepiece, "
    "protobuf or tiktoken",
    (Kind.PACKAGE_CONFLICT, "torch"): "a package was built for another torch or CUDA: install it "
    "again on that node, built for the torch that is there (torch.__version__, torch.version.cuda)",
    (Kind.PACKAGE_CONFLICT, "numpy"): "install the numpy that the other packages were built for: "
    "pip install 'numpy<2', or newer versions of them",
    (Kind.PACKAGE_CONFLICT, "name"): "install the version of that package that has the name, which "
    "the script was written for; if it is a module of yours, correct the import",
    (Kind.PACKAGE_CONFLICT, "transformers"): "install a newer transformers on that node: "
    "pip install -U transformers",
    (Kind.PACKAGE_CONFLICT, "broken"): "install the package of that file again: pip install "
    "--force-reinstall",
    (Kind.NO_SHARED_LIBRARY, "cuda"): "install torch and the package that wants it for one version "
    "of CUDA, with its libraries (nvidia-…-cu12), on that node; or name CUDA's folder: "
    "--env LD_LIBRARY_PATH=PATH",
    (
        Kind.NO_SHARED_LIBRARY,
        "glibc",
    ): "that node's system is older than the package was built for: "
    "install an older version of the package, or update the system",
    (Kind.NO_SHARED_LIBRARY, "glibcxx"): "install a newer libstdc++ in that node's environment: "
    "conda install -c conda-forge libstdcxx-ng; or use the newer of two: "
    "--env LD_LIBRARY_PATH=PATH",
    (Kind.NO_SHARED_LIBRARY, "static"): "have the script import that library before all others",
    (Kind.NO_PROGRAM, "compiler"): "install a compiler on that node, since code is compiled there: "
    "gcc, g++ and ninja; for CUDA code also its toolkit (nvcc), with --env CUDA_HOME=PATH",
    (Kind.DAMAGED_FILE, "lfs"): "it is only the pointer to a file in Git LFS: run git lfs pull, or "
    "download the file itself",
    (Kind.NO_DOWNLOAD, "proxy"): "check the proxy that the ranks use: --env HTTPS_PROXY=URL; or "
    "download it once, and give its path",
    (Kind.NO_DOWNLOAD, "limit"): "download it once to a folder that the ranks share, and give its "
    "path: all of them asked for it at the same time; with a token they may ask more often",
    (Kind.NO_DOWNLOAD, "wandb"): "check that node's access to the internet and the project's name; "
    "or log to files, which wandb sync sends later: --env WANDB_MODE=offline",
    (Kind.NO_CREDENTIALS, "hub"): "check the name; if it is gated or private, accept its terms on "
    "its page and give the ranks a token that may read it: --env HF_TOKEN",
    (Kind.NO_CREDENTIALS, "wandb"): "give the ranks your key: --env WANDB_API_KEY; or do without: "
    "--env WANDB_MODE=offline",
    (Kind.NO_CREDENTIALS, "bucket"): "give the ranks the keys of an account that may read it: "
    "--env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY, or those of your storage",
    (Kind.UNTRUSTED_SERVER, "expired"): "check the date of that node (timedatectl), and update its "
    "certificates (certifi, ca-certificates); if both are right, the server's own has expired",
    (Kind.STOPPED, "frozen"): "on {node}, let it go on as it was paused: docker unpause, systemctl "
    "thaw, or scontrol resume",
    (Kind.NO_PERMISSION, "temporary"): "give the ranks a folder for temporary files that has room "
    "and that the agent's user may write: --env TMPDIR=PATH",
    (Kind.NO_PERMISSION, "cache"): "give the ranks a cache that the agent's user may write: "
    "--env HF_HOME=PATH (TRITON_CACHE_DIR, XDG_CACHE_HOME)",
    (Kind.DISK_ERROR, "server"): "check the file server of that path and its mount on that node: "
    "it does not answer",
    (
        Kind.DISK_ERROR,
        "stale",
    ): "somebody replaced or deleted it on the file server while the ranks "
    "had it open: give each job a cache of its own (--env HF_HOME=PATH), or mount it again",
    (Kind.DISK_ERROR, "open"): "a file on NFS was deleted while it was open: have temporary files "
    "on a local disk: --env TMPDIR=/tmp",
    (Kind.DISK_ERROR, "locks"): "the file server of that path has no locks: have caches on a local "
    "disk (--env HF_HOME=PATH), or mount it with locks",
    (
        Kind.OLD_DRIVER,
        "updated",
    ): "restart that machine: its NVIDIA driver was updated while it ran",
    (
        Kind.NO_GPU_KERNEL,
        "old",
    ): "the GPU of that node is too old for it: use fp16 instead of bf16, "
    "and another attention than flash (attn_implementation='sdpa')",
    (Kind.GPU_ERROR, "fabric"): "start the fabric manager on that node, of the driver's version: "
    "systemctl start nvidia-fabricmanager",
    (Kind.GPU_ERROR, "exclusive"): "end the process that has the GPU (nvidia-smi), or let several "
    "use it: nvidia-smi -c 0",
    (Kind.GPU_ERROR, "library"): "try a smaller batch: they say so, too, when memory is short; if "
    "that does not help, another cuDNN or cuBLAS than torch's may be on LD_LIBRARY_PATH",
    (Kind.NCCL, "memlock"): "let the ranks lock memory: LimitMEMLOCK=infinity in the agent's "
    "service, or --ulimit memlock=-1 for a container",
    (Kind.TRACEBACK, "living"): "see all of it with 'logs': a thread or a data loader's worker has "
    "failed, and the rank waits for it in vain",
    (Kind.EXCEPTION, "no user"): "give the agent's user a name: an entry in /etc/passwd of its "
    "container, or --env USER=NAME where getpass asks",
    (Kind.EXCEPTION, "version"): "correct the script; if it worked elsewhere, the package has "
    "another version here: compare pip list",
    (Kind.EXCEPTION, "own name"): "rename the script's file that has the name of a library: Python "
    "imports it instead",
    (Kind.EXCEPTION, "breakpoint"): "a rank of a job has no prompt: run the lines as a cell of a "
    "session, where breakpoint() asks in the notebook (mntrain session start), or launch with "
    "--env PYTHONBREAKPOINT=0 to skip it",
    (Kind.EXCEPTION, "relative import"): "import it by its full name, or start the script as a "
    "module of its package: -m package.module",
    (Kind.EXCEPTION, "remote code"): "read the code in that repository; if you trust it, have the "
    "script load it with trust_remote_code=True",
    (Kind.EXCEPTION, "lightning"): "have the script take both from the launch: "
    'Trainer(num_nodes=int(os.environ["NNODES"]), devices=int(os.environ["LOCAL_WORLD_SIZE"]))',
    (Kind.EXCEPTION, "weights only"): "if you trust the file, have the script load it with "
    "torch.load(…, weights_only=False), or name the types that it may hold: "
    "torch.serialization.add_safe_globals",
    (Kind.EXCEPTION, "map location"): "have the script load it with torch.load(…, "
    "map_location='cpu'): it was saved on a GPU that this node does not have",
    (Kind.EXCEPTION, "index"): "correct the script or its data: an index, a label or a token id is "
    "out of range; compare labels with the number of classes, and token ids with the vocabulary",
    (
        Kind.EXCEPTION,
        "index on a gpu",
    ): "correct the data or the model's sizes: a label, a token id "
    "or another index is out of range; --env CUDA_LAUNCH_BLOCKING=1 shows the line of the script",
    (Kind.EXCEPTION, "device"): "have the script move the model and every batch to one device: "
    "cuda:LOCAL_RANK",
    (Kind.EXCEPTION, "ordinal"): "have the script use GPU LOCAL_RANK, counted from 0 on each node, "
    "and launch no more ranks on that node than it has GPUs",
    (Kind.EXCEPTION, "same gpu"): "have each rank use a GPU of its own: "
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group()",
    (Kind.EXCEPTION, "fork"): "have the script use CUDA in the main process only, or start workers "
    "by spawn: DataLoader(…, multiprocessing_context='spawn')",
    (Kind.EXCEPTION, "dtype"): "correct the script: use a dtype that the operation has on that "
    "device, and one dtype for weights, inputs and the loss's scaler",
    (Kind.EXCEPTION, "shape"): "correct the script or its data: shapes do not fit; look at samples "
    "of different length (pad them), and at the last, smaller batch (drop_last=True)",
    (Kind.EXCEPTION, "gradient"): "correct the script: nothing that the loss depends on is trained "
    "(requires_grad, detach, no_grad; with adapters and checkpointing "
    "enable_input_require_grads())",
    (Kind.EXCEPTION, "graph"): "correct the script: use each graph for one backward(), detach what "
    "goes on to the next step, and change no tensor in place that backward() needs",
    (Kind.EXCEPTION, "unused"): "wrap the model with DistributedDataParallel(…, "
    "find_unused_parameters=True), or use all parameters in every step",
    (Kind.EXCEPTION, "no group"): "have the script call torch.distributed.init_process_group() "
    "before anything that needs it, such as SyncBatchNorm",
    (Kind.EXCEPTION, "environment"): "have the script keep the environment that it is given, and "
    "start no ranks of its own: torchrun has set RANK, WORLD_SIZE and MASTER_ADDR",
    (Kind.EXCEPTION, "shared tensors"): "save it with safetensors.torch.save_model(), or clone the "
    "tensors that share memory",
    (Kind.EXCEPTION, "pickle"): "have the script define it at the top of a module, and open files "
    "in the worker that reads them; or use num_workers=0",
    (Kind.EXCEPTION, "terminal"): "ranks have no terminal: have the script take the answer from an "
    "argument or a variable (--env)",
    (Kind.EXCEPTION, "exists"): "several ranks make it at once: os.makedirs(…, exist_ok=True), or "
    "have only rank 0 do it",
    (Kind.EXCEPTION, "data"): "check that file: its data is not as the script expects; if a data "
    "set was changed since, load it again: download_mode='force_redownload'",
    (Kind.EXCEPTION, "padding"): "have the script set tokenizer.pad_token = tokenizer.eos_token",
    (Kind.EXCEPTION, "no data"): "the data set is empty: check its path on that node, and what is "
    "filtered out",
    (Kind.EXIT_CODE, "shell"): "start the script with Python: a shell has read it",
    (Kind.EXIT_CODE, "arguments"): "correct the arguments after the script's name",
    (Kind.EXCEPTION, "program"): "see with 'logs' what the program that it started has printed",
    (Kind.NO_MODULE, "interpreter"): "install it there: {python} -m pip install {package}",
    (Kind.WAITED_TOO_LONG, "lost"): "start that node again, then: mntrain resume {job}; "
    "--min-nodes lets a job continue without it",
    (Kind.KILLED, "wished"): _AGAIN,
    (
        Kind.LINK_DOWN,
        "unstable",
    ): "replace the cable of {interface} on {node}, or use another port of "
    "the switch; if that does not help, another card",
    (Kind.LINK_DOWN, "gone"): "check the card and its driver on {node}, then launch again",
    (Kind.MTU_TOO_LARGE, "uneven"): "on {node}: ip link set {interface} mtu {mtu}, as the other "
    "node has it",
    (
        Kind.MTU_TOO_LARGE,
        "small",
    ): "something between {node} and {peer} has a smaller MTU, like a VPN "
    "or a tunnel: try ip link set {interface} mtu 1400 on both, and let ICMP pass the firewalls",
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
    """Return the fix of a kind, filled in with facts.

    Args:
        special: what else is known; see :data:`SPECIAL`.
    """
    fix = SPECIAL[kind, special] if special else FIXES[kind]
    return fix.format(**facts)
