"""The doctor's look at the nodes of one launch, before anything is leased."""
