"""Download a model from the Hugging Face hub: its files, all of one commit, in the local cache.

``huggingface_hub`` downloads and caches the files. This module chooses the files that a model
needs, downloads the weights last, decides when the cache is complete, and converts errors to
ExportErrors; ``naming`` puts the model's name before them.
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

_PATIENCE = 10.0  # Seconds after which a hub that does not respond counts as unreachable.
_TOO_MANY_REQUESTS = 429  # The HTTP status of too many requests.
# A file that every model on the hub has. It is downloaded after the settings, so if the cache lacks
# it, the cache may lack settings as well.
_LAST_SETTINGS_FILE = ".gitattributes"


@dataclass(frozen=True)
class HubModel:
    """One commit of a model on the hub.

    Attributes:
        name: The model's name.
        folder: The cache's folder with the files downloaded so far, in the layout of the model.
        files: Names of all files of the commit; empty if only the cache is used.
        unreachable: Why only the cache is used; None if the hub responds.
        modules: The steps that the model's files list.
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
        """Download the best of the transformer's weight files, with all parts.

        Raises:
            ExportError: The download fails, as in ``find_model``.
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
        """Download those of the files that the model has."""
        names = self.files.intersection(files)
        if not names:
            return
        _snapshot(self.name, self.commit, names)
        for file in names:
            # The library uses the cached files if the hub stops responding.
            if not (self.folder / file).is_file():
                raise ExportError(f"the hub did not send {file}; try again later")


def find_model(name: str, revision: str | None) -> HubModel:
    """Find a model's commit, and download its other files, or find them in the local cache.

    The weights are not downloaded.

    The first response contains the commit of a branch or tag, and all files are downloaded at that
    commit, even if the branch moves meanwhile. Without a network, only the cache is used.

    Args:
        name: The model's name, such as ``bert-base-uncased`` or ``organization/model``.
        revision: A branch, tag or commit; None uses the main branch.

    Raises:
        ExportError: The name or revision is unknown, access to the model is denied, there is no
            network and no cached copy, or a transfer was interrupted.
    """
    revision = revision or "main"
    info = _model_info(name, revision)
    if isinstance(info, str):
        folder = _cached(name, revision, info)
        return HubModel(name, folder, frozenset(), info, read_modules(folder))
    folder = _snapshot(name, revision, [MODULES])
    if folder.name != info.sha:  # The branch moved between the two requests.
        return find_model(name, revision)
    files = frozenset(file.rfilename for file in info.siblings or ())
    model = HubModel(name, folder, files, None, read_modules(folder))
    model._fetch(_settings(model.modules))
    model._fetch([_LAST_SETTINGS_FILE])
    return model


def commit_of(name: str, revision: str | None) -> str:
    """Return the commit that a revision of a model stands for, without downloading anything.

    Args:
        name: The model's name.
        revision: A branch, tag or commit; see ``find_model``.

    Raises:
        ExportError: The name or revision is unknown, access to the model is denied, or there is no
            network and no cached copy.
    """
    revision = revision or "main"
    with naming(name):
        info = _model_info(name, revision)
        if isinstance(info, str):
            return _cached(name, revision, info).name
    return str(info.sha)


def _settings(modules: Modules) -> list[str]:
    """Return the names of a model's files except its weights."""
    inner = [CONFIGURATION, ADAPTER, *TOKENIZER, *VOCABULARIES, *SENTENCE_SETTINGS]
    pooling = modules.pooling or "1_Pooling"  # A missing list of steps is reported as an error.
    files = [MODULES, PROMPTS, *(_inside(pooling, name) for name in (CONFIGURATION, WEIGHTS[0]))]
    files += [
        _inside(path, name) for _, path in modules.after for name in (CONFIGURATION, *WEIGHTS)
    ]
    return files + [_inside(modules.transformer, name) for name in inner]


def _inside(folder: str, file: str) -> str:
    return f"{folder}/{file}" if folder else file


def _snapshot(name: str, revision: str, files: Iterable[str]) -> Path:
    """Download some files into the hub's cache, and return the cache's folder of the commit."""
    try:
        with quiet():
            if not sys.stderr.isatty():
                disable_progress_bars()
            folder = snapshot_download(
                name, revision=revision, allow_patterns=sorted(files), etag_timeout=_PATIENCE
            )
    except (
        Exception
    ) as error:  # an OSError, or an error of the HTTP library, which has its own tree
        # If the hub does not respond, the library reports a missing cache entry; see its cause.
        no_response = isinstance(error, LocalEntryNotFoundError)
        raise _hub_error(revision, (error.__cause__ if no_response else None) or error) from error
    return Path(folder)


def _cached(name: str, revision: str, unreachable: str) -> Path:
    """Return the cache's folder of a commit, with all settings."""
    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise ExportError(
            f"{unreachable}, and the local cache does not have revision {revision} of the model; "
            "run this once while the hub can be reached, or name a model's folder"
        ) from error
    if not (folder / _LAST_SETTINGS_FILE).is_file():
        raise _only_parts(unreachable, _LAST_SETTINGS_FILE)
    return folder


def _only_parts(unreachable: str, file: str) -> ExportError:
    return ExportError(
        f"{unreachable}, and the local cache has only parts of the model, without {file}; run "
        "this once while the hub can be reached, or name a model's folder"
    )


def _model_info(name: str, revision: str) -> ModelInfo | str:
    """Return the hub's information about a model, or the reason why only the cache can be used.

    This is a single request, without the long retries of downloads.
    """
    try:
        with quiet():
            return HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
    except HFValidationError as error:
        raise ExportError("no such folder, and not a valid name of a model on the hub") from error
    except OfflineModeIsEnabled:
        return "the hub is not used (HF_HUB_OFFLINE is set)"
    except HfHubHTTPError as error:
        if (status := _status(error)) == _TOO_MANY_REQUESTS or status >= 500:
            return f"the hub fails with status {status}"
        raise _hub_error(revision, error) from error
    except Exception as error:  # an OSError, or an error of the HTTP library
        return f"the hub at {constants.ENDPOINT} cannot be reached ({type(error).__name__})"


def _hub_error(revision: str, error: BaseException) -> ExportError:
    """Return an error of one line: why the hub does not send a model, and what to do."""
    status = _status(error) if isinstance(error, HfHubHTTPError) else 0
    if isinstance(error, RevisionNotFoundError):
        return ExportError(f"this model has no revision {revision} on the hub")
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return ExportError(
            "no such folder, and no such model on the hub, or a private model; check the name, "
            "or set HF_TOKEN to a token that may read the model"
        )
    if isinstance(error, GatedRepoError) or status in (401, 403):
        return ExportError(
            f"the hub refuses to send its files (status {status}); accept the model's terms on "
            "its page and set HF_TOKEN to a token, or name a folder with a copy"
        )
    # The errors of requests itself have none.
    if isinstance(error, OSError) and error.errno is not None:
        return ExportError(f"cannot be stored in the hub's cache: {error.strerror}")
    reason = f"it answers {status}" if status else f"the connection broke, {type(error).__name__}"
    return ExportError(f"the hub did not send all of its files ({reason}); try again later")


def _status(error: HfHubHTTPError) -> int:
    return 0 if error.response is None else error.response.status_code
