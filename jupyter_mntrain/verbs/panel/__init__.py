"""The submit panel without its widgets: choices, checks, what is remembered, the text form."""
