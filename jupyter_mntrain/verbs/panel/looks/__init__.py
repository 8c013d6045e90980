"""Looks: what a panel asks about in the background, once it is shown."""
