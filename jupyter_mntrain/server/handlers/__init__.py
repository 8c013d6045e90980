"""Request handlers of the page, one file per group of routes."""
