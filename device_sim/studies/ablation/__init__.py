"""Which parts of the paper's method matter (its Tables 3 to 7)?

Huang, Qu, Yuan and Chen, "FaLA: Fast Linear Adaptation for Replacing Backbone Models on Edge
Devices". See ``README.md`` for the answer.
"""
