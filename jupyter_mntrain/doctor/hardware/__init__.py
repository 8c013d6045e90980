"""Checks of hardware: GPUs, network cards, adapters for RDMA, and what the kernel has logged."""
