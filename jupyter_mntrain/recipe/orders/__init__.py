"""Orders: what each rank of a pipeline does in a step, for every schedule, as data. No torch."""
