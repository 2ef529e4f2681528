"""Shared by methods that train the transformer: their grid, their fit and their search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from fala import DataError
from fala_sim.methods.method import EFFORT, Method, MethodSettings, Scores
from fala_sim.methods.situation import Situation

if TYPE_CHECKING:
    from torch import nn

    from fala_sim.methods.training.loop import UserTraining


class Trained(Method):
    """Gradient training on the user's labels, starting from the vendor's model.

    Attributes:
        rates: Learning rates from which validation users choose.
    """

    trained = True
    tuned = True
    all_tasks = True
    rates: ClassVar[tuple[float, ...]]

    @staticmethod
    @abstractmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Set which parameters of a ``transformers`` encoder train, and add the method's layers."""

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return every learning rate with every number of epochs."""
        epochs = range(1, EFFORT // len(self.rates) + 1)
        return [{"learning_rate": rate, "epochs": n} for rate in self.rates for n in epochs]

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Train with one setting.

        The stages are ``"load"`` (the model into memory) and ``"train"``. The meter's ``batch`` is
        one batch of 16 texts of 128 tokens, or of the model's maximum if that is less.

        Raises:
            DataError: There is no transformer to train, or the method cannot train it.
        """
        training = self._begin(situation, float(settings["learning_rate"]))
        for _ in range(int(settings["epochs"])):
            training.epoch()
        training.count_flops()
        return training.scores

    def search(self, situation: Situation) -> Iterator[tuple[MethodSettings, Scores]]:
        """Train once for each learning rate, and yield the model after each epoch.

        The scores are those of the current model, so use them before the next ones, which train the
        same model further. After n epochs they equal the scores of ``fit`` with n epochs.

        Raises:
            DataError: There is no transformer to train, or the method cannot train it.
        """
        training: UserTraining | None = None
        for settings in self.grid(situation):
            if training is None or settings["epochs"] == 1:
                training = self._begin(situation, float(settings["learning_rate"]))
            training.epoch()
            yield settings, training.scores

    def _begin(self, situation: Situation, rate: float) -> UserTraining:
        if situation.transformer is None:
            raise DataError(
                f"method {self.name} trains the transformer, but {situation.new.name} is only a "
                "bundle; name the folder that the bundle was made from, or leave "
                f"{self.name} out"
            )
        from fala_sim.methods.training.loop import UserTraining

        return UserTraining(situation, situation.transformer, self.adapt, rate)
