"""Without a bridge: the words answer before any forward pass, and say what to encode first."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, PUBLIC, TEXTS
from devices import embedded, loss, refine_all, vendor_of
from fala.bundle.lexical import rounded
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.model.heads import Head
from fala.model.lexical import Lexical
from fala.personal.budget import Budget
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS


def with_words(release, target, seed=0):
    """The same release, whose head has words as well: of little weight, so far."""
    bundle = Bundle.open(release)
    head = bundle.head()
    weight = 0.01 * np.random.default_rng(seed).normal(size=(len(head.weight), BUCKETS))
    lexical = rounded(Lexical(Lexicon.fit(PUBLIC), weight.astype(np.float32)))
    write_release(
        target, bundle, Head(head.task, head.labels, head.weight, head.bias, None, lexical), {}
    )
    return target


@pytest.fixture(scope="module")
def worded(tmp_path_factory):
    """The new release with words; no bridge leads to it."""
    folder = tmp_path_factory.mktemp("worded")
    plain = bridged.write_releases(folder, bridges=False)
    return with_words(plain["mid"], folder / "worded.fala")


def test_words_answer_before_any_forward_pass(device, path, worded, truth):
    vendor = vendor_of(worded)
    report = device.replace(worded, Budget(0))
    assert report.forward_passes == report.counts.representatives == 0
    assert report.instant is not None and report.bridged == report.examples == len(TEXTS)
    assert report.decision == report.instant.decision == "personal"
    assert report.waiting == 0 and embedded(path, worded) == set()
    of_vendor = vendor[range(len(PROBES)), [int(y) for y in truth]]
    assert loss(device, truth) < 0.95 * -np.log(of_vendor).mean()


def test_passes_make_it_better_and_go_where_it_is_undecided(device, path, worded, truth):
    device.replace(worded, Budget(0))
    before = loss(device, truth)
    report = device.refine(Budget(30))
    assert report.forward_passes == len(embedded(path, worded)) == 30
    assert report.counts.clusters == 0
    refine_all(device)
    assert embedded(path, worded) == set(TEXTS)
    assert loss(device, truth) < before
