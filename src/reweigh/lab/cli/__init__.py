"""The command line, one file per command. A command imports torch and numpy only when it runs."""
