"""Kubernetes: agents in the pods of a JobSet or a TrainJob, which Kueue may queue."""
