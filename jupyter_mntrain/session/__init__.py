"""Sessions: the program of ranks that stay, and run the cells that a notebook sends."""
