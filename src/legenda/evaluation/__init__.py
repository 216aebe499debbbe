"""Evaluation: run folders opened, predictions of a split scored, compared and written."""
