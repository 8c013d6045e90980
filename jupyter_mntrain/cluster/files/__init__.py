"""Files on nodes: brings models and data sets there, and a job's files back."""
