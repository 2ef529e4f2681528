"""What does a history of releases cost?

The study takes one user's device through successive releases of a vendor. See ``README.md`` for the
answer.
"""
