"""FLOPs of selection and of closed-form solves, by their shapes; a multiply-add is two.

Only leading terms are counted, without terms that are linear in n, C or d alone. Counts of
decompositions are those of Golub and Van Loan, "Matrix Computations", 4th edition (2013).
"""

from __future__ import annotations

from fala.solver.minimum import FitCost


def logits_flops(examples: int, classes: int, dimension: int) -> float:
    """Return the FLOPs of n examples through C rows of a head: 2 n C d."""
    return 2.0 * examples * classes * dimension


def clustering_flops(examples: int, dimension: int, clusters: int) -> float:
    """Return the FLOPs of correlation clustering by KwikBucks: 4 n^2 d + 2 n K d.

    The count has all cosines for the nearest neighbours (2 n^2 d), the cosines among the drawn
    vertices for the pivots (2 n^2 d), and the cosines of all vertices to the K pivots. Strong
    queries are look-ups.
    """
    return 4.0 * examples**2 * dimension + 2.0 * examples * clusters * dimension


def fit_flops(work: FitCost) -> float:
    """Return the FLOPs of a device's fit, by Newton's method with conjugate gradients.

    The count has, once, the Gram matrix, or for each factor the matrix over the columns; the
    Cholesky factors (section 4.2: m^3 / 3); and two products with the rows, or with the Gram
    matrix, for each logit's direction and step.
    """
    size = float(work.size)
    flops = 2.0 * work.gram + work.factors * size**3 / 3
    if not work.gram:
        flops += work.factors * size * work.numbers
    direction = size**2 if work.gram else 2.0 * work.numbers
    return flops + 2 * work.logits * (work.directions * direction + work.steps * work.numbers)


def ridge_flops(examples: int, classes: int, dimension: int) -> float:
    """Return the FLOPs of a ridge solve by one eigendecomposition per class: C (2 m^2 M + 9 m^3).

    m is the smaller of n and d, and M the larger. The count has the Gram matrix of the smaller
    side, and its eigenvalues and eigenvectors (section 8.3: about 9 m^3).
    """
    small, large = sorted((examples, dimension))
    return classes * (2.0 * small**2 * large + 9.0 * small**3)


def procrustes_flops(pairs: int, new_dimension: int, old_dimension: int) -> float:
    """Return the FLOPs of an orthogonal map from n pairs: 2 n d d' + 6 M m^2 + 20 m^3 + 2 d d' m.

    The count has the cross product of both sides, its thin singular value decomposition (section
    8.6: 6 M m^2 + 20 m^3, where m is the smaller dimension and M the larger), and the product of
    the singular vectors.
    """
    small, large = sorted((new_dimension, old_dimension))
    product = 2.0 * new_dimension * old_dimension
    return product * pairs + 6.0 * large * small**2 + 20.0 * small**3 + product * small


def affine_flops(pairs: int, new_dimension: int, old_dimension: int, rank: int) -> float:
    """Return the FLOPs of a reduced-rank ridge regression.

    They are 2 n d (d + d') + d^3 / 3 + 4 d^2 d' + 9 d'^3 + 4 d d' r: both cross products, a
    Cholesky factor and d' solves with it, the (d', d') matrix of the fitted values (its cheaper
    order, 2 d d'^2, is counted as 2 d^2 d'), its eigenvectors, and the projection on r of them.
    """
    d, e = new_dimension, old_dimension
    return 2.0 * pairs * d * (d + e) + d**3 / 3 + 4.0 * d**2 * e + 9.0 * e**3 + 4.0 * d * e * rank
