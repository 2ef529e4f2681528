"""How public annotators differ from the vendor's head: the prior that devices start from.

Needs SciPy, which the base install has not.
"""
