"""One room for each action: how it is started, continued, and what became of it."""
