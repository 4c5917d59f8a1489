"""Sharding propagation of the mesh dialect: what one op takes from what is known around it."""
