"""X-Transformer: X-Linear attention in a Transformer (Pan et al., CVPR 2020)."""
