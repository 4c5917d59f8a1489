"""One line for JAX: a function, shapes of its arguments and a mesh in; shardings for its arguments and results out."""

from planner.integrations.jax import JaxPlan, plan

__all__ = ["JaxPlan", "plan"]
