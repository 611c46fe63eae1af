"""What every part of Sexton shares: schemas and their codec, typed events, formats, errors, settings."""
