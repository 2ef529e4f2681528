"""Which texts are encoded next, and when to stop."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

#: Texts encoded before the first new fit, and the most texts between two fits.
BATCH, LARGEST_BATCH = 25, 200
#: A batch that moves the examples' probabilities by less than this, on average, is the last.
LEAST_MOVE = 0.005


def affordable(missing: Sequence[Sequence[str]], limit: int) -> list[str]:
    """Choose texts to encode, the cheapest example's first.

    In each step the example with the fewest missing texts is chosen: after one match of a user,
    others with the same history lack a text or two. Of equally cheap examples the more important
    is first, so documents are chosen by importance alone.

    Args:
        missing: The missing texts of each of n examples, the most important example first; no
            duplicates in an example.
        limit: Most texts.

    Returns:
        Texts in the order in which to encode them, without duplicates.
    """
    lacking = [set(texts) for texts in missing]
    examples_of: defaultdict[str, list[int]] = defaultdict(list)
    for example, texts in enumerate(missing):
        for text in texts:
            examples_of[text].append(example)
    queue = [(len(texts), example) for example, texts in enumerate(lacking)]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue:
        cost, example = heapq.heappop(queue)
        if cost != len(lacking[example]):
            continue  # it is cheaper now, and in the queue again
        if cost > limit - len(chosen):
            break  # all others cost as much
        for text in missing[example]:
            if text in lacking[example]:
                chosen.append(text)
                for affected in examples_of[text]:
                    lacking[affected].discard(text)
                    if lacking[affected]:
                        heapq.heappush(queue, (len(lacking[affected]), affected))
    return chosen
