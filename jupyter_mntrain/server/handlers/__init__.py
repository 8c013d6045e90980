"""What the page asks, route by route."""
