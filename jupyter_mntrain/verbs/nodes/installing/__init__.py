"""Installing: turns machines into nodes through the system's own ssh."""
