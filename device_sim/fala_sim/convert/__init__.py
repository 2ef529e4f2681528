"""Converters from data sets of real people to the rows of ``fala-replace --data``.

One module per data set reads its files. One of two pure functions converts them to a `Conversion`:
`annotators.convert` for classification, `matching.convert` for matching. `commands` defines a
command for each data set.
"""
