"""Hardware and software of this machine: GPUs, interfaces, ports, versions, link speed."""
