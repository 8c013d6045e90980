"""Sources: where nodes come from beyond machines that were joined by hand."""
