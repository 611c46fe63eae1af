"""What waits: the delay queue, and how it is consumed when it is due."""
