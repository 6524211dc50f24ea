"""Changing a model: what is to blame, and a changed ensemble written back into its own library."""
