"""Device: the peak rate of a rank's device, from data sheets or measured, and what disturbed it."""

READY = "mntrain: ready to measure"
"""Line that a measuring program prints once it has loaded; it begins when it reads a line."""

BEGINS = "mntrain: measuring "
"""Beginning of the line that it prints before each dtype; the dtype follows."""
