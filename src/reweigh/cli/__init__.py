"""The command line, one file per command. Nothing heavy is imported before a command needs it."""

from reweigh.cli.app import app, main

__all__ = ["app", "main"]
