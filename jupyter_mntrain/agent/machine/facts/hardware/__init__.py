"""Hardware: how GPUs and network cards are set up, and what the kernel has logged of them."""
