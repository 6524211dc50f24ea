"""Changing a model so that it meets a requirement, with as few changed decisions as possible."""
