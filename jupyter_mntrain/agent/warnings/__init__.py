"""WarningWatch: warnings about a job that has not failed, though its numbers may be worthless."""
