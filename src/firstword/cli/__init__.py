"""The command line: one file per command that parses, calls and prints."""
