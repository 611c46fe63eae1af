"""Files of sequenced metadata that newer ones have replaced, collected under their boundary."""
