"""One-call entry points for torch and jax, and the annotation of ONNX models."""
