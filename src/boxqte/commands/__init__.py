"""One module a command: `add_parser` declares its arguments, `run` does it."""
