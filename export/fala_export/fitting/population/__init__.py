"""The scales of devices' fits: how public annotators differ from the vendor's head."""
