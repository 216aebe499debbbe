"""Exported captioners: opened by ONNX Runtime and searched in NumPy, without PyTorch."""
