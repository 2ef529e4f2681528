"""The choice of texts to encode."""

from hypothesis import given
from hypothesis import strategies as st

from fala.selection.representatives import affordable

WORDS = st.lists(st.sampled_from("abcdefghij"), max_size=5, unique=True)


def complete(missing, chosen):
    return [example for example, texts in enumerate(missing) if set(texts) <= set(chosen)]


def test_texts_are_selected_by_importance():
    assert affordable([["c"], ["a"], ["b"], ["a"]], 2) == ["c", "a"]


@given(st.lists(WORDS, max_size=12), st.integers(0, 12))
def test_selected_texts_are_within_the_limit_and_all_needed(missing, limit):
    chosen = affordable(missing, limit)
    assert len(chosen) == len(set(chosen)) <= limit
    done = [missing[example] for example in complete(missing, chosen)]
    assert set(chosen) == {text for texts in done for text in texts}
    for texts in missing:  # nothing more could have been completed
        assert set(texts) <= set(chosen) or len(set(texts) - set(chosen)) > limit - len(chosen)
