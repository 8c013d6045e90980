"""Benchmark: what its times mean, what NCCL says of its transport, and what is too slow. Pure."""
