"""Which texts to encode, so that a budget of forward passes pays for many examples."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence


def affordable(missing: Sequence[Sequence[str]], limit: int) -> list[str]:
    """Choose texts to encode, the cheapest example's first.

    Each time the example is taken that lacks the fewest texts then: after one match of a user,
    those that share its history lack a text or two. Of equally cheap ones the more important goes
    first, so documents go by importance alone.

    Args:
        missing: The texts that each of n examples lacks, the most important example first; no
            text twice in an example.
        limit: Most texts.

    Returns:
        Texts in the order in which they are worth encoding, none twice.
    """
    lacking = [set(texts) for texts in missing]
    examples_of: defaultdict[str, list[int]] = defaultdict(list)
    for example, texts in enumerate(missing):
        for text in texts:
            examples_of[text].append(example)
    queue = [(len(texts), example) for example, texts in enumerate(lacking)]
    heapq.heapify(queue)
    taken: list[str] = []
    while queue:
        cost, example = heapq.heappop(queue)
        if cost != len(lacking[example]):
            continue  # it has become cheaper since, and is in the queue again
        if cost > limit - len(taken):
            break  # and all others cost as much
        for text in missing[example]:
            if text in lacking[example]:
                taken.append(text)
                for other in examples_of[text]:
                    lacking[other].discard(text)
                    if lacking[other]:
                        heapq.heappush(queue, (len(lacking[other]), other))
    return taken
