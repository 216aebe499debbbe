"""The figures of the papers, drawn from trained models."""
