"""Data sets of real people and pre-trained backbones: catalogue, download, readers and division.

``formats`` has a module for each format. One of two pure functions converts what it reads to a
``Conversion``: ``annotators.convert_documents`` for classification, and
``matching.convert_moments`` for matching. ``models`` has the backbones.
"""
