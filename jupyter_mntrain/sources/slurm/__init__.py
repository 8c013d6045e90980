"""SLURM: agents in an allocation, using only ``sbatch``, ``squeue``, ``sinfo`` and ``scancel``."""
