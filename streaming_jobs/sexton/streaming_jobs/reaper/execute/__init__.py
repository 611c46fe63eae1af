"""Stage 3, execute: keys by bucket into requests, each with one outcome in the end."""
