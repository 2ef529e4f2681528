"""Labelled rows from files of every form."""
