"""A model on the Hugging Face hub: its files, all of one commit, in the hub's local cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fala import ExportError
from fala_export.models.folder import (
    MODULES,
    PROMPTS,
    SENTENCE_SETTINGS,
    read_modules,
)
from fala_export.models.transformer_files import (
    CONFIGURATION,
    TOKENIZER,
    VOCABULARIES,
    WEIGHTS,
    loading,
    read_json,
)
from fala_export.quiet import quiet

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

_PATIENCE = 10.0  # seconds after which a hub that does not answer counts as out of reach
_SIGN_OF_ALL = ".gitattributes"  # in the cache only where somebody fetched the whole model


@dataclass(frozen=True)
class HubModel:
    """One commit of a model on the hub.

    Attributes:
        name: The model's.
        folder: The cache's folder with the files fetched so far, in the layout of the model.
        unreachable: Why only the cache is asked; None where the hub answers.
    """

    name: str
    folder: Path
    unreachable: str | None

    @property
    def commit(self) -> str:
        """The commit that all files are of."""
        return self.folder.name

    def fetch_weights(self, folder: str) -> None:
        """Fetch the weights. They come last, so a cached model that has them is whole.

        Args:
            folder: The transformer's, within the model; empty for the model's own.

        Raises:
            ExportError: As ``find_model``.
        """
        inner = f"{folder}/" if folder else ""
        with quiet():
            for name in WEIGHTS:
                if (path := self._find(inner + name)) is None:
                    continue
                if path.suffix == ".json":
                    for part in _parts(self.name, path):
                        self._find(inner + part)
                return

    def _fetch_settings(self) -> None:
        self._find(MODULES)
        modules = read_modules(self.name, self.folder)
        inner = f"{modules.transformer}/" if modules.transformer else ""
        files = [inner + name for name in (CONFIGURATION, *TOKENIZER)]
        if modules.sentence:
            files += [PROMPTS, *(inner + name for name in SENTENCE_SETTINGS)]
        if modules.pooling is not None:
            files.append(f"{modules.pooling}/{CONFIGURATION}")
        if modules.attention is not None:
            files.append(f"{modules.attention}/{WEIGHTS[0]}")
        for file in files:
            self._find(file)
        if not (self.folder / inner / TOKENIZER[0]).is_file():
            for name in VOCABULARIES:
                self._find(inner + name)

    def _find(self, file: str) -> Path | None:
        """Find a file in the cache or fetch it; None where the model has none."""
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.name, file, revision=self.commit)
        if cached is not None:  # a path, or the mark of a file known to be missing
            return Path(cached) if isinstance(cached, str) else None
        if self.unreachable is None:
            return _download(self.name, file, self.commit)
        if (self.folder / _SIGN_OF_ALL).is_file():
            return None
        raise ExportError(
            f"{self.name}: {self.unreachable}, and the local cache has only parts of it, without "
            f"{file}: run this once where the hub can be reached, or give a model's folder"
        )


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
    with quiet():
        unreachable = _why_unreachable(name, revision)
        model = HubModel(name, _resolve(name, revision or "main", unreachable), unreachable)
        model._fetch_settings()
        return model


def _resolve(name: str, revision: str, unreachable: str | None) -> Path:
    from huggingface_hub import try_to_load_from_cache

    for file in (CONFIGURATION, MODULES):  # an old layout has the first in a folder below
        if unreachable is None:
            path = _download(name, file, revision)
        else:
            cached = try_to_load_from_cache(name, file, revision=revision)
            path = Path(cached) if isinstance(cached, str) else None
        if path is not None:
            return path.parent
    if unreachable is None:
        raise ExportError(f"{name}: not a model folder: it has no {CONFIGURATION}")
    raise ExportError(
        f"{name}: {unreachable}, and the local cache has no {revision} of it: run this once where "
        "the hub can be reached, or give a model's folder"
    )


def _download(name: str, file: str, revision: str) -> Path | None:
    """Fetch a file into the cache; None where the model has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file, revision=revision, etag_timeout=_PATIENCE))
    except LocalEntryNotFoundError as error:  # of the other's kind, but the hub gave no answer
        raise _told(name, file, revision, error.__cause__ or error) from error
    except EntryNotFoundError:
        return None
    except OSError as error:
        raise _told(name, file, revision, error) from error


def _why_unreachable(name: str, revision: str | None) -> str | None:
    """Ask the hub for a model once, without the long retries that its files are fetched with."""
    from huggingface_hub import HfApi
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
    except HFValidationError as error:
        raise ExportError(f"{name}: no such folder, and no name for a model") from error
    except OfflineModeIsEnabled:
        return "the hub is not asked (HF_HUB_OFFLINE is set)"
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise _told(name, "", revision, error) from error
    except HfHubHTTPError as error:
        status = _status(error)
        return f"the hub fails with status {status}" if status >= 500 else None
    except OSError as error:
        return f"the hub at {ENDPOINT} cannot be reached ({type(error).__name__})"
    return None


def _told(name: str, file: str, revision: str | None, error: BaseException) -> ExportError:
    """Say in one line why the hub does not give a file, and what to do."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = _status(error) if isinstance(error, HfHubHTTPError) else 0
    if isinstance(error, RevisionNotFoundError):
        return ExportError(f"{name}: this model on the hub has no revision {revision}")
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return ExportError(
            f"{name}: no such folder, and no such model on the hub, or a private one: check the "
            "name, or put a token that may read it into HF_TOKEN"
        )
    if isinstance(error, GatedRepoError) or status in (401, 403):
        return ExportError(
            f"{name}: the hub refuses to give {file} (status {status}): accept the model's terms "
            "on its page and put a token into HF_TOKEN, or give a folder with a copy"
        )
    if isinstance(error, OSError) and error.errno is not None:  # of requests' own, none has one
        return ExportError(f"{name}: {file} cannot be kept in the hub's cache: {error.strerror}")
    reason = f"it answers {status}" if status else f"the connection broke, {type(error).__name__}"
    return ExportError(f"{name}: the hub did not give all of {file} ({reason}): try again later")


def _parts(name: str, index: Path) -> list[str]:
    """Read which files hold the weights, from the file that says so."""
    with loading(name, index.name):
        parts = sorted(set((read_json(name, index) or {})["weight_map"].values()))
        if any(Path(part).name != part for part in parts):
            raise ValueError("it names files outside the model's folder")
    return parts


def _status(error: HfHubHTTPError) -> int:
    return 0 if error.response is None else error.response.status_code
