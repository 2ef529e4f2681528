"""The laboratory's report: one page that needs no network, and the plots as files."""
