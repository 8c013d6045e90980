"""SLURM: agents in an allocation, by ``sbatch``, ``squeue``, ``sinfo`` and ``scancel`` alone."""
