"""Captioned videos."""
