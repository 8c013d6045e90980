"""Networks: their links, measurements, InfiniBand and RoCE, and networks that stay unused."""
