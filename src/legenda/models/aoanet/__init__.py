"""AoANet: attention on attention in encoder and decoder (Huang et al., ICCV 2019)."""
