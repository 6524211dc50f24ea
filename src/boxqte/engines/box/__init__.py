"""The box engine: exact for plain tree ensembles, with certain bounds at any time on the way (docs/engine.md)."""
