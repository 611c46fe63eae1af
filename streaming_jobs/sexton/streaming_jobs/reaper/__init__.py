"""The reaper: takes intents in micro-batches through decode, judge, execute and settle.

One module for each stage. `task` strings the four together inside one Spark stage, `job` fixes the offset
range, takes the barrier and commits; `command` is the entry point.
"""
