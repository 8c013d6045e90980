"""The pipeline: stages, schedules, replicas and link timing."""
