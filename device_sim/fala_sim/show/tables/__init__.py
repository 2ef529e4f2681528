"""Tables from records: nothing here runs a model."""
