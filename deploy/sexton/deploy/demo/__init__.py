"""`sexton demo`: a story on real parts, told step by step, and checked at its end."""
