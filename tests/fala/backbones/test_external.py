"""An app's function returns the embeddings, or the error says what is wrong, and no input."""

import numpy as np
import pytest

from fala import BundleFormatError, EncoderError
from fala.backbones.external import ExternalEncoder
from secrets_kept import SECRET, Loud, said_by

ROWS = np.eye(9, 4, dtype=np.float32)


def test_an_encoder_returns_any_kind_of_array():
    torch, sparse = pytest.importorskip("torch"), pytest.importorskip("scipy.sparse")
    for kind in (
        ROWS.tolist(), iter(ROWS), ROWS.astype(np.float64), sparse.csr_matrix(ROWS),
        torch.tensor(ROWS, requires_grad=True),
    ):  # fmt: skip
        encoder = ExternalEncoder("words", 4, lambda texts, kind=kind: kind)
        np.testing.assert_array_equal(encoder.encode(list("abcdefghi")), ROWS)


def raises(kind, *arguments):
    def fail(inputs):
        raise kind(*arguments, *inputs)

    return fail


def fails_from_another_error(inputs):
    raise LookupError("unknown") from KeyError(*inputs)


def fails_with_a_note(inputs):
    error = TypeError(*inputs)
    error.__notes__ = [*inputs]
    raise error


def fails_while_another_is_handled(inputs):
    try:
        return {}[inputs[0]]
    except KeyError:
        raise ValueError("unknown") from KeyError(inputs[0])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (raises(ValueError), r"failed on 1 input: ValueError in line \d+ of test_external"),
        (raises(BundleFormatError), "failed on 1 input"),
        (fails_from_another_error, "failed on 1 input: LookupError"),
        (fails_with_a_note, "failed on 1 input: TypeError"),
        (fails_while_another_is_handled, "failed on 1 input: ValueError"),
        (lambda inputs: Loud(), "no array of numbers"), (list, "no array of numbers"),
        (np.array, "no array of numbers"), (lambda inputs: ROWS[:1] * 1j, "no array of numbers"),
        (lambda inputs: dict.fromkeys(inputs, 1), "no array of numbers"),
        (lambda inputs: [inputs[0], 1.0], "no array of numbers"), (lambda inputs: None, "returned"),
        (lambda inputs: ROWS[:0], "returned shape"), (lambda inputs: ROWS[:1, :-1], "shape"),
        (lambda inputs: ROWS[:1] * np.nan, "not finite"), (lambda inputs: ROWS[:1] * 1e6, "large"),
    ],
)  # fmt: skip
def test_a_wrong_embedding_is_an_error_that_quotes_no_input(broken, why):
    with pytest.raises(EncoderError, match=why) as caught:
        ExternalEncoder("cloud", 4, broken).encode([f"{SECRET} in a text"])
    assert SECRET not in said_by(caught.value)
