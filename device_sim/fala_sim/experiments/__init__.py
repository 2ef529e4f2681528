"""The experiments, from options to jobs, and from jobs to records.

An experiment is found in this folder. It is a module, or a package with

- ``jobs``: its jobs, each run in its own process; an experiment on people lists them in
  ``EXPERIMENTS``, and any other has an ``options.Family``;
- ``tables`` and ``plots``: functions of the records' frame, registered by their decorators.

A module contains its own jobs, tables and plots. The other modules here are what experiments share.
"""
