"""From an engine's outcome to what was asked: results, regions, profiles, pairs, samples, verification, rows, proofs."""
