"""Exported captioners: opened by ONNX Runtime and searched in NumPy, without PyTorch.

Nothing about their use leaves the machine: ONNX Runtime's telemetry is off unless ORT_DISABLE_TELEMETRY says otherwise.
"""

import os

# ONNX Runtime reads it when it is first imported, which no module of Legenda does before this package. Otherwise 1.32
# reports sessions to Microsoft, and writes a number of the machine into the home folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
