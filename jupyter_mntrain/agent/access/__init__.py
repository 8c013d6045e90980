"""Access control: who called, what they may ask for, how often, and a record of it."""
