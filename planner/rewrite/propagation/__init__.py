"""Sharding propagation of the mesh dialect: the option of one op, and a walk over all ops."""
