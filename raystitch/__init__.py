"""raystitch: invariance-aware model stitching at scale."""
