"""Plan a JAX function for a mesh, and get the shardings of its arguments and results."""

from planner.integrations.jax import JaxPlan, plan

__all__ = ["JaxPlan", "plan"]
