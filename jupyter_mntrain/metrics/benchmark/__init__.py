"""Benchmark: what its times mean, which transport NCCL used, and what is too slow. Pure."""
