"""A recording, fault-playing proxy in front of an S3 server: docs/faults.md says what it plays."""
