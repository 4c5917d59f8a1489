"""A plan written back onto the ONNX model that its graph came from."""

from planner.integrations.onnx import annotated_model

__all__ = ["annotated_model"]
