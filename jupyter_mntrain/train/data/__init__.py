"""Training data: files to documents to token ids to packed batches."""
