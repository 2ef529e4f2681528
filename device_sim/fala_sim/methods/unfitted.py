"""Models without a fit: the old personal models, and the new model or head alone."""

from __future__ import annotations

from functools import partial

from fala_sim.methods.frozen import shipped_scores, vendor_scores
from fala_sim.methods.method import Look, Method, MethodSettings, Scores
from fala_sim.methods.situation import Situation


class Old(Method):
    """Old personal model without lexical features, as before the new backbone arrives."""

    name = "old"
    title = "Old personal model, no lexical features"
    row = 10
    look = Look("#93704b", "<")
    all_tasks = True
    baseline = False

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Keep the old personal model."""
        return situation.old_logits


class OldWords(Method):
    """Old personal model: FaLA's device before the replacement, with lexical features."""

    name = "old-words"
    title = "Old personal model"
    row = 10
    look = Look("#93704b", "1")
    all_tasks = True
    baseline = False
    with_words = True

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Keep the model of a device with the old release."""
        installed = situation.installed
        return partial(installed.logits, installed.learned(situation.user))


class Global(Method):
    """New head alone: the new backbone with the vendor's head, the same for every user."""

    name = "global"
    title = "New head alone"
    row = 11
    look = Look("#77808a", "o")
    all_tasks = True

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Return the release's model as it is."""
        return vendor_scores(situation)


class GlobalWords(Method):
    """New model alone: FaLA's release without personalization, the same for every user."""

    name = "global-words"
    title = "New model alone"
    row = 12
    look = Look("#5a7f96", "H")
    baseline = False
    with_words = True
    all_tasks = True

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Return the release's model as it is."""
        return shipped_scores(situation)
