"""Write a plan into the ONNX model that its graph was imported from."""

from planner.integrations.onnx import annotated_model

__all__ = ["annotated_model"]
