"""Encoding: documents to texts to token ids on disk, in bounded memory."""
