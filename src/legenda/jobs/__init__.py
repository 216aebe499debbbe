"""Captioning and feature extraction of millions of images, in shards, on one machine or a Ray cluster."""
