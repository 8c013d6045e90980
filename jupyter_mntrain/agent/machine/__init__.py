"""Machine: reads this machine's GPUs, interfaces, ports and versions, and measures its links."""
