"""Request handlers of the page, route by route."""
