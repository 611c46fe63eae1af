"""Kafka as every part of Sexton reaches it: what the cluster says of itself, and how partitions are read."""
