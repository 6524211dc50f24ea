"""The command `boxqte`: one file a command, each with `add_parser(commands)`; main.py puts them together."""
