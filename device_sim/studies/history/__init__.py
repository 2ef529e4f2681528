"""What does a history of releases cost?

Successive releases of a vendor on one user's device. See ``README.md`` for the answer.
"""
