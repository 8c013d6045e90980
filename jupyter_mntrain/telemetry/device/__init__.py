"""Device: what a rank's device achieves, from data sheets or measured, and who disturbed that."""

READY = "mntrain: ready to measure"
"""Line that a measuring program prints once it has loaded; it begins when it reads a line."""
