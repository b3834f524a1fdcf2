"""Readers for untrusted files: downloads, archives, pickles, images, tables and text."""
