"""Training data: from files to documents to token ids to packed batches."""
