"""The Transformer of NG-SAN and its variants (Guo et al., CVPR 2020)."""
