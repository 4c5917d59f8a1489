"""Everything between two shardings of one tensor: cheapest paths, traffic, other meshes, bounds."""
