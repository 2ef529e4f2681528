"""Many people's LoRA at once equals that of each alone."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from fala import DataError
from fala_sim.meter import Meter
from fala_sim.methods.lora import Lora
from fala_sim.situation import User
from fala_sim.training import side_by_side
from fala_sim.training.loop import Training
from fala_sim.training.side_by_side import SideBySide
from trained import documents, make_head, make_situation, matches

pytestmark = pytest.mark.slow

RATE, EPOCHS = 1e-2, 2


def without_dropout(folder):
    """A model's folder without dropout: side by side it is drawn once for all people."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    file.write_text(json.dumps(config | off))
    return folder


def people_of(situation, make, sizes):
    """The same situation for users with different numbers of examples."""
    people = []
    for number, size in enumerate(sizes):
        examples, labels = make(size, seed=10 + number)
        user = User(str(number), examples, labels, *make(12, seed=20 + number))
        people.append(replace(situation, user=user, meter=Meter()))
    return people


@pytest.mark.parametrize(
    ("task", "make", "sizes"),
    [("classification", documents, (40, 17, 3, 0)), ("matching", matches, (20, 33))],
)
def test_people_train_side_by_side_as_one_by_one(task, make, sizes, tmp_path, monkeypatch):
    head = make_head(task, query=task == "matching", scale=0.1)
    situation = make_situation(tmp_path / "new", *make(4, seed=1), head)
    people, model = people_of(situation, make, sizes), without_dropout(situation.transformer)
    monkeypatch.setattr(side_by_side, "_TOKENS", 300)  # of some people at once
    together = SideBySide(people, model, Lora.adapt, RATE)
    for _ in range(EPOCHS):
        together.epoch()
    for number, person in enumerate(people):
        alone = Training(person, model, Lora.adapt, RATE)
        start = alone.scores(person.user.test)
        for _ in range(EPOCHS):
            alone.epoch()
        expected = alone.scores(person.user.test)
        assert (np.abs(expected - start).max() > 0.1) == bool(sizes[number])
        np.testing.assert_allclose(
            together.scores(number, person.user.test), expected, atol=2e-4, err_msg=str(number)
        )


def test_people_of_several_releases_are_refused(tmp_path):
    situation = make_situation(tmp_path / "new", *documents(4, seed=1), make_head())
    with pytest.raises(DataError, match="from one release, with one seed"):
        SideBySide([situation, replace(situation, seed=1)], situation.transformer, Lora.adapt, RATE)


def test_a_transformer_that_shares_layers_with_positions_is_refused(tmp_path):
    situation = make_situation(
        tmp_path / "new", *documents(4, seed=1), make_head(), family="deberta-v2"
    )
    together = SideBySide([situation] * 2, situation.transformer, Lora.adapt, RATE)
    with pytest.raises(DataError, match="one by one"):
        together.epoch()
