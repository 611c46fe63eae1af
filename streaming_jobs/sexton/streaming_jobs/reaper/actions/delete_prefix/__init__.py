"""Everything under a prefix: pass after pass over its listing."""
