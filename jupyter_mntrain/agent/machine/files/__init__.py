"""Large files on this node: its roots, transfers and what uses its disks."""
