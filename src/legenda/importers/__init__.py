"""Weights of the released codes, as models of ours."""
