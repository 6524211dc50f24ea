"""Commands of `boxqte` that have a module of their own."""
