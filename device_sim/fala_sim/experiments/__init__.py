"""The experiments, one family per room: from options to jobs, and from jobs to records.

A room's ``plan`` defines the jobs and their order; its ``jobs`` are run, each in its own process.
``families`` lists the rooms, with their options on the command line.
"""
