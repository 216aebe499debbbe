"""Referring expressions."""
