"""A model on the Hugging Face hub: its files, all of one commit, in the hub's local cache.

``huggingface_hub`` fetches and caches them. This module chooses the files that a model needs,
fetches the weights last, decides when the cache is complete, and turns errors into ExportErrors;
``naming`` puts the model's name before them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils.tqdm import disable_progress_bars

from fala_export.base.errors import ExportError
from fala_export.base.quiet import quiet
from fala_export.models.folder import (
    ADAPTER,
    CONFIGURATION,
    MODULES,
    PROMPTS,
    SENTENCE_SETTINGS,
    TOKENIZER,
    VOCABULARIES,
    WEIGHTS,
    Modules,
    naming,
    read_modules,
    weight_parts,
)

_PATIENCE = 10.0  # seconds after which a hub that does not respond counts as unreachable
_TOO_MANY_REQUESTS = 429  # HTTP status
# A file of every model on the hub. It is fetched after the settings: where the cache lacks it, the
# cache may lack settings, too.
_LAST_SETTINGS_FILE = ".gitattributes"


@dataclass(frozen=True)
class HubModel:
    """One commit of a model on the hub.

    Attributes:
        name: The model's.
        folder: The cache's folder with the files fetched so far, in the layout of the model.
        files: Names of all files of the commit; empty where only the cache is used.
        unreachable: Why only the cache is used; None where the hub responds.
        modules: The steps that its files list.
    """

    name: str
    folder: Path
    files: frozenset[str]
    unreachable: str | None
    modules: Modules

    @property
    def commit(self) -> str:
        """The commit of all files."""
        return self.folder.name

    def fetch_weights(self) -> None:
        """Fetch the best of the transformer's files of weights, and its parts.

        Raises:
            ExportError: As ``find_model``.
        """
        folder = self.modules.transformer
        names = [_inside(folder, name) for name in WEIGHTS]
        best = next((name for name in names if name in self.files), names[0])
        self._fetch([best])
        if self.unreachable and not any((self.folder / name).is_file() for name in names):
            raise _only_parts(self.unreachable, best)
        if best.endswith(".json"):
            parts = weight_parts(self.folder / best)
            self._fetch(_inside(folder, part) for part in parts)

    def _fetch(self, files: Iterable[str]) -> None:
        """Fetch some files, if the model has them."""
        names = self.files.intersection(files)
        if not names:
            return
        _snapshot(self.name, self.commit, names)
        for file in names:
            # The library takes the cache's files where the hub stops responding.
            if not (self.folder / file).is_file():
                raise ExportError(f"the hub did not give {file}: try again later")


def find_model(name: str, revision: str | None) -> HubModel:
    """Find a model's commit, and fetch all but the weights or find it in the hub's local cache.

    The first response has the commit of a branch or tag; all files are fetched at that commit, even
    if the branch moves meanwhile. Without a network only the cache is used.

    Args:
        name: The model's name, as ``bert-base-uncased`` or ``organization/model``.
        revision: A branch, tag or commit; None takes the main branch.

    Raises:
        ExportError: An unknown name or revision, a model without access, no network and no copy in
            the cache, or an interrupted transfer.
    """
    revision = revision or "main"
    info = _model_info(name, revision)
    if isinstance(info, str):
        folder = _cached(name, revision, info)
        return HubModel(name, folder, frozenset(), info, read_modules(folder))
    folder = _snapshot(name, revision, [MODULES])
    if folder.name != info.sha:  # the branch moved between the two requests
        return find_model(name, revision)
    files = frozenset(file.rfilename for file in info.siblings or ())
    model = HubModel(name, folder, files, None, read_modules(folder))
    model._fetch(_settings(model.modules))
    model._fetch([_LAST_SETTINGS_FILE])
    return model


def commit_of(name: str, revision: str | None) -> str:
    """The commit that a revision of a model stands for; nothing is fetched.

    Args:
        name: The model's name.
        revision: See ``find_model``.

    Raises:
        ExportError: An unknown name or revision, a model without access, or no network and no copy
            in the cache.
    """
    revision = revision or "main"
    with naming(name):
        info = _model_info(name, revision)
        if isinstance(info, str):
            return _cached(name, revision, info).name
    return str(info.sha)


def _settings(modules: Modules) -> list[str]:
    """Names of a model's files except its weights."""
    inner = [CONFIGURATION, ADAPTER, *TOKENIZER, *VOCABULARIES, *SENTENCE_SETTINGS]
    pooling = modules.pooling or "1_Pooling"  # without a list of steps it is an error
    files = [MODULES, PROMPTS, *(_inside(pooling, name) for name in (CONFIGURATION, WEIGHTS[0]))]
    files += [
        _inside(path, name) for _, path in modules.after for name in (CONFIGURATION, *WEIGHTS)
    ]
    return files + [_inside(modules.transformer, name) for name in inner]


def _inside(folder: str, file: str) -> str:
    return f"{folder}/{file}" if folder else file


def _snapshot(name: str, revision: str, files: Iterable[str]) -> Path:
    """Fetch some files into the hub's cache; returns its folder of the commit."""
    try:
        with quiet():
            if not sys.stderr.isatty():
                disable_progress_bars()
            folder = snapshot_download(
                name, revision=revision, allow_patterns=sorted(files), etag_timeout=_PATIENCE
            )
    except Exception as error:  # OSError, or one of the HTTP library's: httpx has its own tree
        # Where the hub does not respond, the library reports a missing cache entry; see its cause.
        no_response = isinstance(error, LocalEntryNotFoundError)
        raise _hub_error(revision, (error.__cause__ if no_response else None) or error) from error
    return Path(folder)


def _cached(name: str, revision: str, unreachable: str) -> Path:
    """Find the cache's folder of a commit, with all settings."""
    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise ExportError(
            f"{unreachable}, and the local cache has no {revision} of it: run this once "
            "where the hub can be reached, or give a model's folder"
        ) from error
    if not (folder / _LAST_SETTINGS_FILE).is_file():
        raise _only_parts(unreachable, _LAST_SETTINGS_FILE)
    return folder


def _only_parts(unreachable: str, file: str) -> ExportError:
    return ExportError(
        f"{unreachable}, and the local cache has only parts of it, without {file}: run "
        "this once where the hub can be reached, or give a model's folder"
    )


def _model_info(name: str, revision: str) -> ModelInfo | str:
    """The hub's information about a model, or the reason why only the cache can be used.

    One request, without the long retries of fetching files.
    """
    try:
        with quiet():
            return HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
    except HFValidationError as error:
        raise ExportError("no such folder, and no name for a model") from error
    except OfflineModeIsEnabled:
        return "the hub is not used (HF_HUB_OFFLINE is set)"
    except HfHubHTTPError as error:
        if (status := _status(error)) == _TOO_MANY_REQUESTS or status >= 500:
            return f"the hub fails with status {status}"
        raise _hub_error(revision, error) from error
    except Exception as error:  # OSError, or one of the HTTP library's
        return f"the hub at {constants.ENDPOINT} cannot be reached ({type(error).__name__})"


def _hub_error(revision: str, error: BaseException) -> ExportError:
    """An error of one line: why the hub does not serve a model, and what to do."""
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
    if isinstance(error, OSError) and error.errno is not None:  # requests' own errors have none
        return ExportError(f"cannot be kept in the hub's cache: {error.strerror}")
    reason = f"it answers {status}" if status else f"the connection broke, {type(error).__name__}"
    return ExportError(f"the hub did not give all of its files ({reason}): try again later")


def _status(error: HfHubHTTPError) -> int:
    return 0 if error.response is None else error.response.status_code
