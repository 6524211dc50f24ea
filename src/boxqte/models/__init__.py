"""What a model computes: the ensemble, its decision rule, and one importer a library."""
