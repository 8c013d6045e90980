"""A real SLURM on simulated hosts: a controller, which is also the login node, and compute nodes.

As a library: ``with own_slurm() as slurm: slurm.run("sinfo")``.
"""

from tests.slurm_lab.lab import SlurmLab, missing_slurm, own_slurm

__all__ = ["SlurmLab", "missing_slurm", "own_slurm"]
