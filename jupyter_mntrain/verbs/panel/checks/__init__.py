"""Panel checks: the checks of a launch, made beforehand and shown at the row concerned."""
