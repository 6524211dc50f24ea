"""The commands of `boxqte` that have a module of their own: each has `add_parser(commands)` and `run(arguments)`."""
