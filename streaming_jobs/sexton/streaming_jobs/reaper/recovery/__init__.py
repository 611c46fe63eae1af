"""What earlier attempts may have done, and who may continue: checkpoint, lock, receipts."""
