"""Known messages: what error messages of torch, CUDA, NCCL, Python, Linux, the hub and others mean.

Only messages of other programs are ever searched, and only here. ``tests/agent/failure`` has real
ones, with where they were reported.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jupyter_mntrain.agent.failure.printed import TRACEBACK
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind


class Row(NamedTuple):
    """A row of the table: a pattern, the kind of problem that it means, and which fix applies.

    ``what`` in the pattern is the name that the fix tells. Where other calls give the same message,
    ``call`` is found in the code of this one.
    """

    pattern: str
    kind: Kind
    fix: str = ""
    call: str = ""


MESSAGES: tuple[Row, ...] = (
    # Memory
    Row(
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|CUDA driver error: out of memory|CUDA error: out of memory",
        Kind.GPU_OUT_OF_MEMORY,
    ),
    Row(r"DefaultCPUAllocator: can't allocate|\bMemoryError\b", Kind.OUT_OF_MEMORY),
    Row(
        r"unable to (open|mmap|allocate|write).*shared memory|out of shared memory|\(shm\)"
        r"|/dev/shm",
        Kind.SHARED_MEMORY,
    ),
    Row(
        r"DataLoader worker .*(killed by signal|exited unexpectedly)"
        r"|process \d+ terminated with (signal|exit code)",
        Kind.WORKER_DIED,
    ),
    Row(r"ibv_\w+ .*Cannot allocate memory", Kind.NCCL, "memlock"),
    Row(r"static TLS block", Kind.NO_SHARED_LIBRARY, "static"),
    Row(r"Cannot allocate memory|\[Errno 12\]", Kind.OUT_OF_MEMORY),
    # Shared libraries
    Row(
        r"lib(cuda|nvidia-ml)\.so[.\d]*: cannot open shared object",
        Kind.NO_CUDA,
    ),
    Row(
        r"lib(cudart|cudnn|cublas|cufft|cupti|curand|cusparse|cusolver|nccl|nvrtc|nvJitLink"
        r"|nvToolsExt)\w*\.so[.\d]*: cannot open|Could not load library libcudnn",
        Kind.NO_SHARED_LIBRARY,
        "cuda",
    ),
    Row(
        r"lib(torch|c10)\w*\.so[.\d]*: cannot open shared object",
        Kind.PACKAGE_CONFLICT,
        "torch",
    ),
    Row(r"(?P<what>lib[\w.+-]+): cannot open shared object", Kind.NO_SHARED_LIBRARY),
    Row(r"(GLIBCXX|CXXABI)_[\d.]+.? not found", Kind.NO_SHARED_LIBRARY, "glibcxx"),
    Row(r"GLIBC_[\d.]+.? not found", Kind.NO_SHARED_LIBRARY, "glibc"),
    Row(
        r"invalid ELF header|wrong ELF class|\.so[.\d]*: file too short",
        Kind.PACKAGE_CONFLICT,
        "broken",
    ),
    # Packages
    Row(
        r"undefined symbol|CUDA SETUP: |operator torchvision::|No such operator torchvision"
        r"|Couldn't load custom C\+\+ ops|compiled with different CUDA major versions"
        r"|detected CUDA version .* mismatches",
        Kind.PACKAGE_CONFLICT,
        "torch",
    ),
    Row(
        r"numpy\.\w+ size changed|compiled using NumPy 1|_ARRAY_API not found"
        r"|numpy\.core\.multiarray failed to import|Numpy is not available"
        r"|module 'numpy\w*' has no attribute",
        Kind.PACKAGE_CONFLICT,
        "numpy",
    ),
    Row(
        r"partially initialized module|'\w+' is not a package",
        Kind.EXCEPTION,
        "own name",
    ),
    Row(r"\bBdbQuit\b", Kind.EXCEPTION, "breakpoint"),
    Row(
        r"does not recognize this architecture|Unrecognized configuration class",
        Kind.PACKAGE_CONFLICT,
        "transformers",
    ),
    Row(
        r"is required for a normal functioning of this module|VersionConflict"
        r"|DistributionNotFound|[\w-]+[<>=!~]=[\w.,<>=!~]+.* but (you have|found)"
        r"|is incompatible with .*version",
        Kind.PACKAGE_CONFLICT,
    ),
    Row(r"cannot import name", Kind.PACKAGE_CONFLICT, "name"),
    Row(r"attempted relative import", Kind.EXCEPTION, "relative import"),
    Row(
        r"Couldn't instantiate the backend tokenizer|requires? .{0,40}\bsentencepiece",
        Kind.NO_MODULE,
        "tokenizer",
    ),
    Row(r"'(?P<what>[\w.]+)' is a package and cannot be directly executed", Kind.NO_MODULE, "main"),
    Row(r"No module named '?(?P<what>\w+)\.\w", Kind.NO_MODULE, "part"),
    Row(r"No module named '?(?P<what>\w+)", Kind.NO_MODULE),
    Row(r"requires the (?P<what>[\w-]+) library", Kind.NO_MODULE),
    # Models and data sets of the hub, and other services on the internet
    Row(r"trust_remote_code", Kind.EXCEPTION, "remote code"),
    Row(
        r"GatedRepoError|gated repo|Access to (model|dataset) \S+ is restricted"
        r"|Repository Not Found|RepositoryNotFoundError|Invalid user token"
        r"|You need to pass a (valid )?token|LocalTokenNotFoundError",
        Kind.NO_CREDENTIALS,
        "hub",
    ),
    Row(r"api_key not configured|wandb.{0,40}(login|API key)", Kind.NO_CREDENTIALS, "wandb"),
    Row(r"\bCommError\b", Kind.NO_DOWNLOAD, "wandb"),
    Row(
        r"NoCredentialsError|Unable to locate credentials|\bAccessDenied\b|InvalidAccessKeyId"
        r"|ExpiredToken|DefaultCredentialsError|SignatureDoesNotMatch",
        Kind.NO_CREDENTIALS,
        "bucket",
    ),
    Row(
        r"429 Client Error|429 Too Many Requests|Too Many Requests",
        Kind.NO_DOWNLOAD,
        "limit",
    ),
    Row(
        r"ProxyError|Tunnel connection failed|407 Proxy|connect to proxy",
        Kind.NO_DOWNLOAD,
        "proxy",
    ),
    Row(
        r"certificate (has expired|is not yet valid)",
        Kind.UNTRUSTED_SERVER,
        "expired",
    ),
    Row(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL certificate problem",
        Kind.UNTRUSTED_SERVER,
    ),
    Row(r"40[13] (Client Error|Forbidden|Unauthorized)|HTTP Error 40[13]", Kind.NO_CREDENTIALS),
    Row(
        r"Repo id must be .*'[./~][^']*'|Incorrect path_or_model_id: '[./~]",
        Kind.NO_FILE,
    ),
    Row(r"Primary config directory not found", Kind.NO_FILE),
    Row(
        r"Error no file named \S+|does not appear to have a file named",
        Kind.NO_FILE,
        "weights",
    ),
    Row(
        r"not a valid model identifier|Repo id must be|Incorrect path_or_model_id"
        r"|Can't load (the |a )?\w+( \w+)? (for|of|from) '|DatasetNotFoundError"
        r"|doesn't exist on the Hub|EntryNotFoundError|Couldn't find (a|any) (dataset|data file)"
        r"|couldn't connect to 'https|We couldn't connect to|LocalEntryNotFoundError"
        r"|OfflineModeIsEnabled|Temporary failure in name resolution|NameResolutionError"
        r"|HTTPS?ConnectionPool|urlopen error|Max retries exceeded|Connection to \S+ timed out"
        r"|IncompleteRead|ChunkedEncodingError|50[0234] Server Error|HTTP Error 50[0234]",
        Kind.NO_DOWNLOAD,
    ),
    # Who runs it, and where it may write
    Row(r"uid not found|No username set in the environment", Kind.EXCEPTION, "no user"),
    Row(r"No usable temporary directory", Kind.NO_PERMISSION, "temporary"),
    Row(r"requires access to a writable cache directory", Kind.NO_PERMISSION, "cache"),
    # Files
    Row(r"AF_UNIX path too long", Kind.PATH_TOO_LONG),
    Row(r"\[Errno (107|110|112|121)\] [\w ]+: b?['\"]", Kind.DISK_ERROR, "server"),
    Row(r"Stale file handle", Kind.DISK_ERROR, "stale"),
    Row(r"busy: .*\.nfs[0-9a-f]{8}", Kind.DISK_ERROR, "open"),
    Row(r"No locks available", Kind.DISK_ERROR, "locks"),
    Row(
        r"No space left on device|quota exceeded|unexpected pos \d+|PytorchStreamWriter failed"
        r"|file write failed",
        Kind.DISK_FULL,
    ),
    Row(r"Read-only file system", Kind.READ_ONLY),
    Row(r"Input/output error|Structure needs cleaning", Kind.DISK_ERROR),
    Row(r"File too large", Kind.FILE_TOO_LARGE),
    Row(r"invalid load key, 'v'", Kind.DAMAGED_FILE, "lfs"),
    Row(
        r"PytorchStreamReader failed|failed finding central directory|deserializing header"
        r"|unexpected EOF(?! while parsing)|Ran out of input|pickle data was truncated"
        r"|invalid load key|(file|archive|checkpoint|image)\b.{0,40}\bcorrupt|BadZipFile"
        r"|not a (gzipped|zip|parquet) file|CRC check failed|Compressed file ended"
        r"|while decompressing|image file is truncated|Parquet magic bytes"
        r"|storage has wrong (byte )?size",
        Kind.DAMAGED_FILE,
    ),
    Row(r"`num_nodes=\d+` in Lightning, but the product", Kind.EXCEPTION, "lightning"),
    Row(r"Weights only load failed", Kind.EXCEPTION, "weights only"),
    Row(
        r"size mismatch for|(Missing|unexpected) key.* in state_dict"
        r"|doesn't match the size of optimizer's group",
        Kind.OTHER_MODEL,
    ),
    Row(r"Error\(s\) in loading state_dict", Kind.OTHER_MODEL),
    Row(r"Attempting to deserialize object on", Kind.EXCEPTION, "map location"),
    Row(
        r"Parent directory \S+ does not exist|non-existent directory",
        Kind.NO_FILE,
        "folder",
    ),
    Row(r"\[Errno 17\] File exists", Kind.EXCEPTION, "exists"),
    # Programs, processes and their limits
    Row(
        r"Failed to find C compiler|InvalidCxxCompiler|No working C(\+\+)? compiler"
        r"|CUDA_HOME environment variable is not set|Ninja is required"
        r"|No such file or directory: '[^']*(nvcc|gcc|g\+\+|ninja)'"
        r"|(gcc|g\+\+|nvcc|ninja): (command )?not found",
        Kind.NO_PROGRAM,
        "compiler",
    ),
    Row(r"\b(import|from|def): (command )?not found", Kind.EXIT_CODE, "shell"),
    Row(
        r"^(?:\S*sh: (?:line )?(?:\d+: )?|\S+: (?:line )?\d+: )"
        r"(?P<what>[\w.+-]+): (command )?not found",
        Kind.NO_PROGRAM,
    ),
    # subprocess looks for a name without a folder on the PATH.
    Row(
        r"No such file or directory: '(?P<what>[^'/]+)'",
        Kind.NO_PROGRAM,
        call=r"_execute_child|execvpe?\(",
    ),
    Row(r"Bad git executable|git executable must be", Kind.NO_PROGRAM),
    Row(r"CalledProcessError|returned non-zero exit status", Kind.EXCEPTION, "program"),
    Row(r"Too many open files", Kind.TOO_MANY_FILES),
    Row(
        r"can't start new thread|Resource temporarily unavailable.*fork|fork: retry",
        Kind.TOO_MANY_PROCESSES,
    ),
    Row(r"Resource temporarily unavailable", Kind.TOO_MANY_PROCESSES, call=r"fork"),
    Row(r"EOF when reading a line", Kind.EXCEPTION, "terminal"),
    Row(
        r"error: (unrecognized arguments|the following arguments are required"
        r"|argument .*: (invalid|expected))",
        Kind.EXIT_CODE,
        "arguments",
    ),
    # Between ranks
    Row(
        r"op\.preamble\.length|op\.nbytes|Detected mismatch between collectives"
        r"|tensor shapes? .*(mismatch|do not match) .*rank|Received data size doesn't match"
        r"|expects same model across all ranks",
        Kind.COLLECTIVE_MISMATCH,
    ),
    Row(r"Duplicate GPU detected", Kind.EXCEPTION, "same gpu"),
    Row(
        r"environment variable \w+ expected, but not set",
        Kind.EXCEPTION,
        "environment",
    ),
    Row(
        r"process group has not been initialized",
        Kind.EXCEPTION,
        "no group",
    ),
    Row(r"Expected to have finished reduction", Kind.EXCEPTION, "unused"),
    Row(r"No route to host|Network is unreachable", Kind.NO_ROUTE),
    Row(r"No such file or directory|FileNotFoundError", Kind.NO_FILE),
    Row(
        r"Permission denied: '[^']*(\.cache|/hub/|\.locks?\b|triton)",
        Kind.NO_PERMISSION,
        "cache",
    ),
    Row(r"Permission denied|PermissionError", Kind.NO_PERMISSION),
    Row(r"Unable to find address for: \S+|no socket interface found", Kind.NO_INTERFACE),
    # GPUs
    Row(r"no kernel image is available", Kind.NO_GPU_KERNEL),
    Row(
        r"only supports Ampere|using Ampere GPU|doesn't support bf16"
        r"|is only supported on GPUs with compute capability",
        Kind.NO_GPU_KERNEL,
        "old",
    ),
    Row(
        r"not compiled with CUDA|cuda\.is_available\(\) is False|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|doesn't have NCCL built in|no GPUs found"
        r"|'torch\._C' has no attribute '_?(cuda|Cuda)|Torch not linked with CUDA"
        r"|Tried to instantiate dummy base class (CUDA|Stream|Event)"
        r"|Cannot access accelerator device when none is available|[Nn]o CUDA device"
        r"|requires? (at least \d+ )?(a )?(CUDA|NVIDIA)? ?GPU",
        Kind.NO_CUDA,
    ),
    Row(r"Driver/library version mismatch", Kind.OLD_DRIVER, "updated"),
    Row(
        r"driver version is insufficient|forward compatibility was attempted"
        r"|driver on your system is too old",
        Kind.OLD_DRIVER,
    ),
    Row(r"system not yet initialized", Kind.GPU_ERROR, "fabric"),
    Row(r"busy or unavailable", Kind.GPU_ERROR, "exclusive"),
    Row(
        r"device-side assert|Assertion `.*(n_classes|index out of bounds|srcIndex|idx_dim)",
        Kind.EXCEPTION,
        "index on a gpu",
    ),
    Row(r"invalid device ordinal", Kind.EXCEPTION, "ordinal"),
    Row(r"re-initialize CUDA in forked subprocess", Kind.EXCEPTION, "fork"),
    Row(
        r"tensors to be on the same device|same device as tensor|expected device cuda:\d",
        Kind.EXCEPTION,
        "device",
    ),
    Row(r"ncclRemoteError|NCCL communicator was aborted", Kind.CONNECTION_LOST),
    Row(r"NCCL version|mismatched NCCL|ncclSystemError|ncclInvalidUsage|ncclUnhandled", Kind.NCCL),
    # torch calls the driver itself for expandable segments, and for little else (driver_api.cpp):
    # a vGPU and a Jetson (unsloth#1446), WSL2 (pytorch#192330, pytorch#112957). Tensors in them are
    # shared by pidfd_getfd, which ptrace's rules refuse (pytorch#165685).
    Row(
        r"CUDA driver error: (operation not supported|invalid argument|unknown error)"
        r"|ASSERT FAILED at \S*driver_api\.cpp|pidfd_(open|getfd)",
        Kind.GPU_ALLOCATOR,
    ),
    Row(r"CUDA error:|CUDA driver error|uncorrectable ECC", Kind.GPU_ERROR),
    Row(r"CUDNN_STATUS_\w+|CUBLAS_STATUS_\w+", Kind.GPU_ERROR, "library"),
    # What the script does
    Row(
        r"index out of range in self|(Target|index) -?\d+ is out of bounds"
        r"|out of bounds for dimension",
        Kind.EXCEPTION,
        "index",
    ),
    Row(
        r"not implemented for '(BFloat16|Half|Float8\w*|Long|Int|Bool)'|expected scalar type"
        r"|have the same dtype|\bInput type .* should be the same",
        Kind.EXCEPTION,
        "dtype",
    ),
    Row(
        r"shapes cannot be multiplied|each tensor to be equal size|must match the size of tensor"
        r"|Sizes of tensors must match|is invalid for input of size|shape mismatch"
        r"|exceeds dimension size|to match target batch_size|Given groups=|inhomogeneous shape"
        r"|The expanded size of the tensor|Expected more than 1 value per channel",
        Kind.EXCEPTION,
        "shape",
    ),
    Row(
        r"does not require grad|have any parameters that require a gradient",
        Kind.EXCEPTION,
        "gradient",
    ),
    Row(
        r"backward through the graph a second time|modified by an inplace operation",
        Kind.EXCEPTION,
        "graph",
    ),
    Row(r"Some tensors share memory", Kind.EXCEPTION, "shared tensors"),
    Row(r"(can't|cannot|not be) pickled?\b|Can't get attribute", Kind.EXCEPTION, "pickle"),
    Row(
        r"NonMatchingSplitsSizesError|DatasetGenerationError|ArrowInvalid|JSONDecodeError"
        r"|JSON parse error|UnicodeDecodeError",
        Kind.EXCEPTION,
        "data",
    ),
    Row(r"num_samples should be a positive", Kind.EXCEPTION, "no data"),
    Row(r"does not have a padding token", Kind.EXCEPTION, "padding"),
    Row(
        r"unexpected keyword argument|missing \d+ required positional"
        r"|module '[\w.]+' has no attribute",
        Kind.EXCEPTION,
        "version",
    ),
    Row(r"pip install (-\S+ )*[`'\"]?(?P<what>[\w-]+)", Kind.NO_MODULE),
    # Symptoms
    Row(r"address already in use|EADDRINUSE", Kind.PORT_TAKEN),
    Row(
        r"closed by peer|connection reset|reset by peer|connection refused|connectFullMesh"
        r"|read error|write error|broken pipe|remote process exited",
        Kind.CONNECTION_LOST,
    ),
    Row(r"timed out|timeout|clients joined", Kind.TIMED_OUT),
)
"""The first that is found wins."""

_COMPILED = tuple(re.compile(row.pattern, re.IGNORECASE | re.MULTILINE) for row in MESSAGES)

_OF_PEERS = re.compile(
    r"gloo|nccl|c10d|tcp ?store|process ?group|pair\.cc|rendezvous|torch\.distributed|all_?reduce"
    r"|\brank\b",
    re.IGNORECASE,
)

INNERMOST_LINES = 12
"""Of a traceback: the call that failed, over several lines with marks below them."""

_WORKER = re.compile(r"(?:in|--) (?P<who>DataLoader worker process \d+|(?:process|Process) \d+)\b")


class Known(NamedTuple):
    """A recognized message.

    Args:
        line: of the message, the one that says what happened.
    """

    kind: Kind
    fix: str
    line: str


def speaks_of_peers(message: str) -> bool:
    """Return whether a message about a connection concerns one between ranks."""
    return _OF_PEERS.search(message) is not None


def recognize(message: str, traceback: str = "") -> Known | None:
    """Look up another program's message in the table; ``None`` if it is not there.

    Args:
        traceback: its code, where the message alone does not tell what was tried.
    """
    said, code = own_words(message), _innermost(traceback)
    for row, pattern in zip(MESSAGES, _COMPILED, strict=True):
        if (match := pattern.search(said)) and (not row.call or re.search(row.call, code)):
            facts = {name: found or "it" for name, found in match.groupdict().items()}
            fix = fix_of(row.kind, row.fix, **{"what": "it", **facts})
            return Known(row.kind, fix, _line_at(said, match.start()))
    return None


def own_words(message: str) -> str:
    """Strip the traceback of a data loader's worker from a message."""
    head, found, rest = message.rpartition(TRACEBACK)
    if not found:
        return message
    lines = rest.splitlines()
    said = [line for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    return "\n".join(said) or head


def told(message: str, known: Known | None = None) -> str:
    """Return a message on one line: what failed, and the part of it that says why.

    Like ``OSError: AF_UNIX path too long, in DataLoader worker process 0``.
    """
    words = [line.strip() for line in own_words(message).splitlines() if line.strip()]
    first = words[0] if words else message.strip()
    if known is not None and known.line and known.line not in first:
        first = f"{first.rstrip(':.')}: {known.line}"
    who = _WORKER.search(message) if TRACEBACK in message else None
    return f"{first}, in {who['who']}" if who else first


def _line_at(text: str, position: int) -> str:
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[begin : end if end >= 0 else len(text)].strip()


def _innermost(traceback: str) -> str:
    """Return the code of the call that failed, on one line."""
    lines = traceback.splitlines()[-INNERMOST_LINES:]
    return " ".join(line for line in lines if line.startswith("    "))
