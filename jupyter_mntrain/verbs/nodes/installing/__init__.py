"""Installing: makes machines nodes through the system's own ssh."""
