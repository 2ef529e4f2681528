"""The experiments, a family a room: from what is asked to jobs, and from jobs to records.

A room's ``plan`` says what is run, in what order; its ``jobs`` are what runs, each in a process of
its own. ``families`` lists the rooms, with their options on the command line.
"""
