"""Converters from data sets of real people to the rows of ``fala-replace --data``.

One module a data set reads its files. What it read becomes a `Conversion` by one of two pure
functions, `annotators.convert` for classification and `matching.convert` for matching;
`commands` gives each data set a command.
"""
