"""What earlier attempts may have done, and who may go on: checkpoint, lock, receipts."""
