"""What inputs there are: attributes, the space, tables and their rows, conditions, inference, populations."""
