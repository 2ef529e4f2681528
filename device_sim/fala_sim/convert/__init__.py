"""Converters from data sets of real annotators to the rows of ``fala-replace --data``.

One module a data set. Each has a reader of the data set's files and a pure function from what was
read to a `Conversion`; `fala_sim.cli` gives it a command.
"""
