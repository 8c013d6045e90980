"""History of a job: follows its journals and logs on every participant."""
