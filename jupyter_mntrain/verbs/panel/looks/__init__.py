"""Looks: what a panel asks in the background, once it is shown."""
