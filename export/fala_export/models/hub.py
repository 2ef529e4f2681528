"""A model on the Hugging Face hub: its files, all of one commit, in the hub's local cache.

``huggingface_hub`` fetches and keeps them. Ours is which files a model needs, that its weights
come last, when the cache alone may be trusted, and which errors are raised; ``naming`` begins them
with the model's name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fala import ExportError
from fala_export.models.folder import (
    CONFIGURATION,
    MODULES,
    PROMPTS,
    SENTENCE_SETTINGS,
    TOKENIZER,
    VOCABULARIES,
    WEIGHTS,
    Modules,
    read_modules,
    weight_parts,
)
from fala_export.quiet import quiet

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.hf_api import ModelInfo

_PATIENCE = 10.0  # seconds after which a hub that does not answer counts as out of reach
_TOO_MANY = 429  # the status of an answer to who asked too often
# The hub puts it into every model. It comes after the settings, be it by us or by whoever fetched
# the whole model: without it the cache may lack a file of which nothing else tells.
_SIGN_OF_SETTINGS = ".gitattributes"


@dataclass(frozen=True)
class HubModel:
    """One commit of a model on the hub.

    Attributes:
        name: The model's.
        folder: The cache's folder with the files fetched so far, in the layout of the model.
        files: Names of all files of the commit; empty where only the cache is asked.
        unreachable: Why only the cache is asked; None where the hub answers.
    """

    name: str
    folder: Path
    files: frozenset[str]
    unreachable: str | None

    @property
    def commit(self) -> str:
        """The commit that all files are of."""
        return self.folder.name

    def fetch_weights(self, folder: str) -> None:
        """Fetch the best of a model's weights: the last to come, and only if it has a use.

        Args:
            folder: The transformer's, within the model; empty for the model's own.

        Raises:
            ExportError: As ``find_model``.
        """
        names = [_inside(folder, name) for name in WEIGHTS]
        best = next((name for name in names if name in self.files), names[0])
        self._fetch([best])
        if self.unreachable and not any((self.folder / name).is_file() for name in names):
            raise _only_parts(self.unreachable, best)
        if best.endswith(".json"):
            parts = weight_parts(self.folder / best)
            self._fetch(_inside(folder, part) for part in parts)

    def _fetch(self, files: Iterable[str]) -> None:
        """Fetch those of some files that the model has."""
        wanted = self.files.intersection(files)
        if not wanted:
            return
        _snapshot(self.name, self.commit, wanted)
        for file in wanted:
            # The library is content with what the cache has, where the hub falls silent.
            if not (self.folder / file).is_file():
                raise ExportError(f"the hub did not give {file}: try again later")


def find_model(name: str, revision: str | None) -> HubModel:
    """Find a model's commit, and fetch all but the weights or find it in the hub's local cache.

    The first answer says which commit a branch or tag stands for; everything is fetched at that
    commit, should the branch move meanwhile. Without a network the cache alone has to do.

    Args:
        name: The model's, as ``bert-base-uncased`` or ``organization/model``.
        revision: A branch, tag or commit; None takes the main branch.

    Raises:
        ExportError: An unknown name or revision, a model that the hub refuses to give, no
            network and no copy in the cache, or a transfer that broke.
    """
    revision = revision or "main"
    answer = _ask(name, revision)
    if isinstance(answer, str):
        return HubModel(name, _cached(name, revision, answer), frozenset(), answer)
    folder = _snapshot(name, revision, [MODULES])
    if folder.name != answer.sha:  # the branch moved between the two questions
        return find_model(name, revision)
    files = frozenset(file.rfilename for file in answer.siblings or ())
    model = HubModel(name, folder, files, None)
    model._fetch(_settings(read_modules(folder)))
    model._fetch([_SIGN_OF_SETTINGS])
    return model


def _settings(modules: Modules) -> list[str]:
    """Names of the files of a model but its weights."""
    inner = [CONFIGURATION, *TOKENIZER, *VOCABULARIES]
    files = [MODULES]
    if modules.sentence:
        inner += SENTENCE_SETTINGS
        files.append(PROMPTS)
    if modules.pooling is not None:
        files += [_inside(modules.pooling, name) for name in (CONFIGURATION, WEIGHTS[0])]
    return files + [_inside(modules.transformer, name) for name in inner]


def _inside(folder: str, file: str) -> str:
    return f"{folder}/{file}" if folder else file


def _snapshot(name: str, revision: str, files: Iterable[str]) -> Path:
    """Fetch some files into the hub's cache; gives its folder of the commit."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    try:
        with quiet():
            if not sys.stderr.isatty():
                disable_progress_bars()
            folder = snapshot_download(
                name, revision=revision, allow_patterns=sorted(files), etag_timeout=_PATIENCE
            )
    except OSError as error:
        # Of an answer that did not come, the library tells that it is not in the cache either.
        silent = isinstance(error, LocalEntryNotFoundError)
        raise _told(revision, (error.__cause__ if silent else None) or error) from error
    return Path(folder)


def _cached(name: str, revision: str, unreachable: str) -> Path:
    """Find the cache's folder of a commit whose settings are all there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise ExportError(
            f"{unreachable}, and the local cache has no {revision} of it: run this once "
            "where the hub can be reached, or give a model's folder"
        ) from error
    if not (folder / _SIGN_OF_SETTINGS).is_file():
        raise _only_parts(unreachable, _SIGN_OF_SETTINGS)
    return folder


def _only_parts(unreachable: str, file: str) -> ExportError:
    return ExportError(
        f"{unreachable}, and the local cache has only parts of it, without {file}: run "
        "this once where the hub can be reached, or give a model's folder"
    )


def _ask(name: str, revision: str) -> ModelInfo | str:
    """What the hub tells about a model, or why it is not to be asked for any file.

    It is asked once, without the long retries that files are fetched with.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        with quiet():
            return HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
    except HFValidationError as error:
        raise ExportError("no such folder, and no name for a model") from error
    except OfflineModeIsEnabled:
        return "the hub is not asked (HF_HUB_OFFLINE is set)"
    except HfHubHTTPError as error:
        if (status := _status(error)) == _TOO_MANY or status >= 500:
            return f"the hub fails with status {status}"
        raise _told(revision, error) from error
    except OSError as error:
        return f"the hub at {ENDPOINT} cannot be reached ({type(error).__name__})"


def _told(revision: str, error: BaseException) -> ExportError:
    """Say in one line why the hub does not give a model, and what to do."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = _status(error) if isinstance(error, HfHubHTTPError) else 0
    if isinstance(error, RevisionNotFoundError):
        return ExportError(f"this model on the hub has no revision {revision}")
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return ExportError(
            "no such folder, and no such model on the hub, or a private one: check the "
            "name, or put a token that may read it into HF_TOKEN"
        )
    if isinstance(error, GatedRepoError) or status in (401, 403):
        return ExportError(
            f"the hub refuses to give its files (status {status}): accept the model's "
            "terms on its page and put a token into HF_TOKEN, or give a folder with a copy"
        )
    if isinstance(error, OSError) and error.errno is not None:  # of requests' own, none has one
        return ExportError(f"cannot be kept in the hub's cache: {error.strerror}")
    reason = f"it answers {status}" if status else f"the connection broke, {type(error).__name__}"
    return ExportError(f"the hub did not give all of its files ({reason}): try again later")


def _status(error: HfHubHTTPError) -> int:
    return 0 if error.response is None else error.response.status_code
