"""The door: a device's folder with its personal model, its examples and two slots.

What is about the folder as a whole is in ``fala.folder``, what its tasks answer and learn in
``fala.tasks``; here is what changes the release that they stand on.
"""

from __future__ import annotations

import logging
import os

from fala.arguments import (
    NewAdapters,
    adapters_of,
    budget_of,
    follower_of,
    limits_of,
    path_of,
    product_of,
)
from fala.bundle.signature import Trust
from fala.errors import MissingExtraError
from fala.personal.budget import Budget, Progress
from fala.personal.compare import Accept, accept_of
from fala.personal.preview import preview
from fala.personal.prompts import Prompts, mix_prompts, prompts_of
from fala.personal.refine import Refinement
from fala.personal.replace import replace
from fala.personal.reporting import refined_report, replaced_report
from fala.personal.stages import Stages
from fala.report import Preview, Report
from fala.slots.versions import newest_version
from fala.tasks import DeviceTasks
from fala.updates import DEFAULT_PRODUCT
from fala.updates.limits import UpdateLimits

_log = logging.getLogger("fala")


class Device(DeviceTasks):
    """A personal model on a device.

    Use ``Device.create`` once and ``Device.open`` afterwards; it is a context manager. Threads may
    share an object, and processes a folder: every answer is of one model, whole, and whatever was
    learned counts.

    Beside its own task it may have others (``load_adapter``): each is an adapter in the same
    backbone, with examples and a personal model of its own, and is asked by its name.
    """

    @property
    def can_roll_back(self) -> bool:
        """Whether an earlier model is kept."""
        return self._installed.store.slots.active()[1] is not None

    @property
    def on_trial(self) -> bool:
        """Whether the release that answers has still to prove itself; see ``replace``."""
        return self._installed.trials.running() is not None

    @property
    def fell_back(self) -> str | None:
        """Why the device left its last release, which failed its trial; see ``replace``."""
        return self._installed.trials.fell_back

    def preview(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        trust: Trust | None = None,
    ) -> Preview:
        """Is a release worth it to this user? Nothing is changed, and nothing is written.

        All that ``replace`` does before its new model answers is done, and thrown away: over a
        bridge, or with words, that takes no forward pass but for a few probes; without either it
        takes the budget's. The model that answers is fitted once more, to compare with.

        Args:
            bundle: See ``replace``.
            budget: What the replacement may cost; None is ``Budget()``.
            trust: See ``replace``.

        Returns:
            Losses of the old, the vendor's new and the carried model on the same labelled
            examples, each left out, and what the replacement would cost.

        Raises:
            BundleError: As ``replace`` would.
            DataError: An argument is not one of those above.
        """
        path, limits = path_of(bundle, "bundle"), budget_of(budget)
        return preview(self._installed, path, limits, trust)

    def replace(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        accept: Accept = "always",
        trust: Trust | None = None,
        allow_older: bool = False,
        progress: Progress | None = None,
        adapters: NewAdapters = (),
        prompts: Prompts = "off",
    ) -> Report:
        """Replace the backbone and carry the personal model over, and those of all adapters.

        Where the release has a bridge from the old backbone, a new personal model answers before
        any forward pass, and is then refined within the budget, as ``refine`` does. Without a
        bridge the first of the budget's texts are representatives, chosen by correlation
        clustering on the old embeddings. Before it is installed the new release answers odd texts,
        in a process of its own (``fala.slots``), and here the device's own. The old model stays
        for ``rollback``, also where an app that was killed gives the release again, which answers
        already. Whatever goes wrong, the device answers as before, or by the first fit.

        The new release is on trial (``on_trial``) until ``confirm``, or until it has answered 100
        examples; a rollback ends that too, and coming back begins it anew. While it is on trial
        every process lets it answer a few texts before it answers the app. Where it cannot, or
        where three processes in a row died of it, the device falls back to the earlier model by
        itself, catches up with what was said since, and tells why (``fell_back``, until the next
        replacement or rollback; a warning in the log); there is no rolling back to it. Answers
        are counted in memory, and written when they are enough or at ``close``: of a process that
        is killed they do not count, and the trial lasts longer. Who replaces a release on trial
        confirms it: it is what the device goes back to, so let it answer first, or roll back.

        Args:
            bundle: The new release's file; it is copied. It is for the same task and has this
                device's labels, in any order; it may have more.
            budget: What it may cost; None is ``Budget()``.
            accept: ``"better-than-old"`` refuses a release whose first personal model is worse
                for this user than the model that answers, ``"better-than-vendor"`` one where it is
                worse than the vendor's own new model: where the losses of the labelled examples,
                each left out, are larger by more than a standard error of their mean difference,
                pair by pair. Fewer than 10 labels, or 3 of each of two labels, prove nothing.
                ``"better-than-old"`` refuses a release, too, whose own model says the opposite of
                what the old release's own model says of the user's examples, labelled or not
                (``Correlation.contradicts``): labels are few, and one that was made of labels the
                wrong way round is harmful. ``"always"`` refuses nothing; ``Report.worse`` tells it
                in any case, and ``preview`` beforehand.
            trust: The vendor's Ed25519 public key, as its 32 bytes, as PEM, or as a file of
                either: the release must have its signature beside it, as ``fala-export sign``
                writes it. None asks for no signature.
            allow_older: True takes a release whose version is below one that this device has
                had, or that is of another product. Releases without a version are always taken.
            progress: Called with a stage's name, what is done and what there is to do; if it
                gives False, the work ends: before the new model answers with ``CancelledError``
                and nothing changed, afterwards with the report.
            adapters: The vendor's adapters for the new backbone, one for every loaded one: files,
                whose names are the tasks', or files by the tasks' names. All tasks move in one
                transaction, and back alike; one whose adapter fits the new backbone already needs
                none. The budget is for all together: a text that two tasks have in the same
                adapter is encoded once.
            prompts: ``"auto"`` makes a prompt, for what the refinement leaves of the budget; see
                ``refine``. Rolling back leaves the release with them.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: The release cannot be trusted, or is not for this task and these labels.
            OlderReleaseError: ``allow_older`` is False, and it is.
            DataError: An argument is not one of those above.
            MissingExtraError: ``trust`` is given, and pyca/cryptography is not installed.
            MissingAdapterError: A loaded adapter has no successor; delete it first, or give one.
            UnknownAdapterError: One is given that has no predecessor.
            WorseModelError: It would be worse, and ``accept`` refuses that; nothing changed.
            CancelledError: ``progress`` asked for an end.
            DeviceError: The device's folder cannot be written.
            DeviceChangedError: Another release was installed meanwhile.
        """
        path, accepted = path_of(bundle, "bundle"), accept_of(accept)
        limits, follower, files = budget_of(budget), follower_of(progress), adapters_of(adapters)
        self._learner().ready()
        stages, before = Stages(), self.name
        replaced = replace(
            self._installed, path, limits, stages, follower, accepted,
            trust=trust, allow_older=allow_older, adapters=files, prompts=prompts_of(prompts),
        )  # fmt: skip
        report = replaced_report(before, replaced, self._installed, limits, stages)
        _log.info("%s -> %s: %s", report.old, report.new, report.sentence)
        return report

    def update(
        self,
        url: str,
        *,
        root: str | bytes | os.PathLike[str],
        product: str | None = None,
        budget: Budget | None = None,
        accept: Accept = "always",
        limits: UpdateLimits | None = None,
        progress: Progress | None = None,
        adapters: NewAdapters = (),
        prompts: Prompts = "off",
    ) -> Report | None:
        """Install the newest release of the vendor's repository, if this device never had it.

        The repository follows The Update Framework (``fala-export publish`` keeps one). Nothing
        is believed that the keys of the trusted root did not sign, that is past its time, or that
        is older than what this device has seen. A release that the user went back from is not
        installed again: the vendor's next one is. What was downloaded when something broke off is
        gone on from at the next call. Then the release is installed as ``replace`` does.

        Needs the extra ``fala-sdk[ota]``.

        Args:
            url: The repository's address, with http or https.
            root: The trusted root that the app pins: a ``root.json`` of the repository, as bytes
                or as a file.
            product: Whose releases; None takes the installed release's product.
            budget: See ``replace``.
            accept: See ``replace``.
            limits: What is waited for, and how much is taken; None is ``UpdateLimits()``.
            progress: See ``replace``; during ``"download"`` it is told bytes.
            adapters: See ``replace``.
            prompts: See ``replace``.

        Returns:
            What ``replace`` did; None where there is nothing newer.

        Raises:
            DownloadError: The repository cannot be reached, gives too much or too slowly, or
                breaks off.
            UntrustedUpdateError: What it gives is not what the vendor signed; its subclasses tell
                what is past its time and what is older than what was seen.
            UpdateError: It has no such product, or another update is under way.
            MissingExtraError: The extra is not installed.
            FalaError: See ``replace``.
        """
        try:
            from fala.updates.client import Wanted, newer_release, repository_url, trusted_root
        except ImportError as error:
            raise MissingExtraError(
                f"pip install 'fala-sdk[ota]' for signed updates ({error})"
            ) from error
        taken, accepted = limits_of(limits), accept_of(accept)
        prompts_of(prompts)  # before anything is downloaded
        budget, follower = budget_of(budget), follower_of(progress)
        installed = self._installed.now.bundle.manifest.product
        asked = product_of(product) or installed or DEFAULT_PRODUCT

        def newest() -> int | None:
            now = self._installed.now.bundle.manifest
            return newest_version(self._installed.store, asked, now)

        wanted = Wanted(repository_url(url), trusted_root(root), asked, newest)
        with newer_release(self._installed.path, wanted, taken, follower.check) as release:
            if release is None:
                return None
            return self.replace(
                release, budget, accept=accepted, progress=progress, adapters=adapters,
                prompts=prompts,
                allow_older=asked != installed,  # another product was asked for by its name
            )  # fmt: skip

    def refine(
        self,
        budget: Budget | None = None,
        *,
        progress: Progress | None = None,
        adapter: str | None = None,
        prompts: Prompts = "off",
    ) -> Report:
        """Go on with the last replacement: encode more of the user's texts, and fit again.

        For the app's idle time. Every batch of texts is kept, with the model fitted to it, before
        the next: it may be interrupted, or killed, at any instant, and goes on there. It ends
        early where a batch changed next to nothing, all texts were encoded, or another model was
        installed meanwhile.

        Args:
            budget: Further forward passes and seconds; None is ``Budget()``.
            progress: Called with a stage's name, what is done and what there is to do; if it
                gives False, the work ends there.
            adapter: The task whose texts are encoded; see ``predict``.
            prompts: ``"auto"`` then spends what is left on a prompt that texts are read behind. The
                release's writers' prompts are mixed, by 16 passes each and the labels of 16 texts;
                or one pass compiles the user's own newest texts, where the release was trained
                with such. 10 or more further passes judge it. It is taken where other labels, each
                left out, are better predicted with it by more than a standard error: as a
                replacement, on trial, that ``rollback`` undoes; on trial already, as a part of
                that. Forgetting what it was made of undoes it for good. See ``Report.prompt``.
                ``"off"`` by default: it has not won on people who are in no table.

        Returns:
            What was done. ``old`` and ``new`` are the same backbone.

        Raises:
            DataError: An argument is not one of those above.
            DeviceError: The device's folder cannot be written.
        """
        limits, follower = budget_of(budget), follower_of(progress)
        learner, stages = self._learner(adapter), Stages()
        auto = prompts_of(prompts, adapter)
        learner.ready()
        refined = Refinement(learner.task, stages, follower, learner.task.positive()).run(limits)
        left = limits.passes(bridged=True) - refined.forward_passes
        mix = mix_prompts(self._installed, limits, left, stages, follower) if auto else None
        return refined_report(refined, learner.task.now, stages, mix)

    def confirm(self) -> None:
        """End the trial of the release that answers: it has proved itself; see ``replace``.

        For an app with checks of its own. Does nothing where nothing is on trial.

        Raises:
            DeviceError: The device's folder cannot be written.
        """
        self._installed.confirm()

    def rollback(self) -> None:
        """Go back to the model before the last replacement; a second call comes back here.

        All tasks go back together. What was learned since counts: the models are fitted to it
        where their backbones have seen it.

        Raises:
            DeviceError: If no earlier model is kept, or an adapter was loaded since.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        for task in self._installed.roll_back():
            self._learner(task.store.adapter or None).fit()
        _log.info("rolled back to %s", self.name)
