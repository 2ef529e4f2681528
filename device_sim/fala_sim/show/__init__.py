"""Showing records: tables, plots and the report. Nothing here runs anything."""
