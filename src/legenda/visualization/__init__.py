"""Attention maps, figures and HTML reports."""
