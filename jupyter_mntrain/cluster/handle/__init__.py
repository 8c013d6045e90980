"""The handle of a job, but for its life: its label, its logs and its settings."""
