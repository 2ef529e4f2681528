"""Every error that FaLA raises on purpose.

    FalaError
    ├── BundleError                 a release file cannot be trusted or used
    │   ├── BundleFormatError       not a bundle, or its files do not fit each other
    │   ├── BundleVersionError      another format version
    │   ├── BundleDigestError       a file's bytes are not the ones that the vendor packed
    │   ├── BundleMismatchError     a good bundle, but not for this device's task or labels
    │   ├── BundleSignatureError    not signed by the key that the device trusts
    │   ├── OlderReleaseError       older than a release that this device has had
    │   └── MissingAdapterError     a task would have no adapter for the new backbone
    ├── DataError                   the caller's texts, labels or numbers
    │   ├── UnknownLabelError       a label that the device does not have
    │   └── UsageError              arguments that the method does not have; also a TypeError
    ├── DeviceError                 a device folder: missing, in use, damaged, no access
    │   ├── DeviceChangedError      the active model was changed meanwhile
    │   ├── UnknownAdapterError     no adapter of this name is loaded
    │   └── ReleaseInUseError       a release that devices share, and use
    ├── EncoderError                the app's own encoder: missing, another one, or it failed
    ├── BudgetError                 a budget that cannot be kept
    ├── WorseModelError             a replacement that would make the user worse off
    ├── CancelledError              the app cancelled through its progress function
    ├── UpdateError                 an update that was not installed
    │   ├── DownloadError           no data, too much, or not what was announced
    │   │   └── SlowDownloadError   the data came too slowly
    │   └── UntrustedUpdateError    not what the vendor signed
    │       ├── ExpiredUpdateError  signed, but expired
    │       └── RolledBackError     older than what this device has seen already
    └── MissingExtraError           a library is not installed, or cannot be loaded

Errors of other libraries are wrapped at the boundary, and stay their cause; but not where they may
quote a text of the user (``without_texts``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

# Characters of a number that an error shows.
_LONGEST_NUMBER = 24
_DISTRIBUTION = "fala-sdk"


def shown(value: object) -> str:
    """Describe a value that cannot be used, for an error: a number by itself, others by type.

    Errors are logged, and a text of the user may stand by mistake where a name, a label or a number
    is expected. So no error repeats a text; it shows the text's length instead.
    """
    if isinstance(value, str):
        length = str.__len__(value)
        return f"a text of {counted(length, 'character')}" if length else "an empty text"
    if value is None or isinstance(value, Real):
        with contextlib.suppress(Exception):  # a number of thousands of digits
            if len(text := str(value)) <= _LONGEST_NUMBER:
                return text
    return type_of(value)


def type_of(value: object) -> str:
    """Return a value's type with its article, for an error: "an int"."""
    return "None" if value is None else with_article(type(value).__name__)


def with_article(noun: str) -> str:
    """Put "a" or "an" before a noun, by its first letter."""
    # "an n-d-array", and "a uint8".
    an = noun == "ndarray" or noun[:1].lower() in "aeio"
    return f"an {noun}" if an else f"a {noun}"


def counted(count: int, noun: str) -> str:
    """Count things in words: "1 label", "2 labels", "3 passes"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}es" if noun.endswith("s") else f"{count} {noun}s"


def be(count: int) -> str:
    """Return the verb of a number of things: "1 is", "2 are"."""
    return "is" if count == 1 else "are"


class FalaError(Exception):
    """Base of all errors that FaLA raises on purpose."""

    def __str__(self) -> str:
        """Return the message as one line, with control characters escaped: it may name files."""
        return printable(super().__str__())


class BundleError(FalaError):
    """A release file cannot be trusted or used."""


class BundleFormatError(BundleError):
    """The file is not a bundle, or a file in it is missing, damaged, or does not fit the others."""


class BundleVersionError(BundleError):
    """The bundle's format version is not one that this SDK reads."""


class BundleDigestError(BundleError):
    """A file's bytes differ from the SHA-256 in the manifest."""


class BundleMismatchError(BundleError):
    """The bundle is sound, but its task or labels are not this device's."""


class BundleSignatureError(BundleError):
    """The bundle has no signature by the key that the device trusts."""


class OlderReleaseError(BundleError):
    """The release is older than one that this device has had, or of another product."""


class DataError(FalaError):
    """Texts, labels or numbers that cannot be used."""


class UnknownLabelError(DataError):
    """A label or tag is not one of the device's."""


class UsageError(DataError, TypeError):
    """A call with arguments that the method does not have; the error names the right call."""


class DeviceError(FalaError):
    """A device folder is missing, in use, damaged, or cannot be read or written."""


class DeviceChangedError(DeviceError):
    """Another thread or process changed the active model meanwhile; nothing was installed."""


class UnknownAdapterError(DeviceError):
    """No adapter of this name is installed on the device."""


class ReleaseInUseError(DeviceError):
    """A release cannot be deleted: devices use it, or can go back to it."""


class MissingAdapterError(BundleError):
    """A replacement would leave a task without an adapter for the new backbone."""


class EncoderError(FalaError):
    """The app's own encoder is missing, is not the release's, or failed."""


class WorseModelError(FalaError):
    """The new model would be worse for this user than the one to compare with; nothing changed.

    Attributes:
        before: Mean loss, in nats, of the model to compare with on the user's labelled examples,
            each left out; None if the release contradicts the active one and too few encoded texts
            have labels.
        after: Mean loss of the new model on the same examples.
    """

    def __init__(self, message: str, before: float | None, after: float | None) -> None:
        super().__init__(message)
        self.before, self.after = before, after


class CancelledError(FalaError):
    """The app's progress function cancelled; the active model is unchanged."""


class UpdateError(FalaError):
    """An update was not installed; the active model is unchanged."""


class DownloadError(UpdateError):
    """The vendor's server sent nothing, too much, or broke off; the next call resumes."""


class SlowDownloadError(DownloadError):
    """The vendor's server sends less than the minimum speed."""


class UntrustedUpdateError(UpdateError):
    """The server's data is not what the vendor signed."""


class ExpiredUpdateError(UntrustedUpdateError):
    """The server's data was signed, but has expired."""


class RolledBackError(UntrustedUpdateError):
    """The server's data is older than what this device has seen already."""


class MissingExtraError(FalaError):
    """A library that this needs is not installed, or cannot be loaded; nothing was changed."""


class BudgetError(FalaError):
    """A budget is not a budget: negative, or not a number."""


def install_hint(extra: str) -> str:
    """Return the command that adds an extra to FaLA, from the place FaLA was installed from.

    No index has FaLA under its name. Installers note the clone, the wheel's file or the address in
    ``direct_url.json`` (PEP 610). Without that note, the hint is to install the wheel.

    Args:
        extra: The extra's name in ``pyproject.toml``.
    """
    from importlib import metadata

    origin: Mapping[str, Any] = {}
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        noted = json.loads(metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "")
        origin = noted if isinstance(noted, dict) else {}
    clone = Path(__file__).absolute().parents[3]  # nothing is installed if it is on PYTHONPATH
    if "url" not in origin and (clone / "pyproject.toml").is_file():
        origin = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    url = str(origin.get("url", ""))
    file = _path_of(url) if url.startswith("file://") else ""
    if isinstance(folder := origin.get("dir_info"), dict):
        return f"pip install {'-e ' * bool(folder.get('editable'))}'.[{extra}]' in {file}"
    if isinstance(vcs := origin.get("vcs_info"), dict):
        commit = vcs.get("requested_revision") or vcs.get("commit_id")
        url = f"{vcs.get('vcs')}+{url}@{commit}"
        if folder_of := origin.get("subdirectory"):
            url += f"#subdirectory={folder_of}"
    elif file:
        return f"pip install {shlex.quote(f'{file}[{extra}]')}"
    if not url:
        return f"install the wheel of {_DISTRIBUTION} with its extra [{extra}]"
    return f"pip install {shlex.quote(f'{_DISTRIBUTION}[{extra}] @ {url}')}"


def _path_of(url: str) -> str:
    """Return the path in a file's address, without importing ``urllib``, a network client."""
    path = re.sub(
        rb"%([0-9a-fA-F]{2})",
        lambda code: bytes.fromhex(code[1].decode()),
        url.removeprefix("file://").encode(),
    )
    return os.fsdecode(path).removeprefix("/" if os.name == "nt" else "")


@contextlib.contextmanager
def needs(what: str, package: str = "", *, extra: str = "") -> Iterator[None]:
    """Raise one error if a library that is imported in the block is missing or broken.

    Args:
        what: What needs which library, as the error says it.
        package: The name of the package that pip installs.
        extra: The extra of FaLA that contains the library, instead of a package.

    Raises:
        MissingExtraError: The library is missing or broken.
    """
    try:
        yield
    except (ImportError, OSError) as error:
        # Extension modules raise ImportError when Ctrl-C interrupts their import.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise
        how = install_hint(extra) if extra else f"pip install {package}"
        raise MissingExtraError(f"{what}: {how} ({safe_line(error)})") from error


def model_changed(path: object) -> DeviceChangedError:
    """Return the error for a device whose active model has changed meanwhile."""
    return DeviceChangedError(f"{path}: the device's model was changed meanwhile")


def check_word(value: object, words: Sequence[str], name: str) -> str:
    """Check that an app's argument is one of some words, and return it.

    Args:
        value: The app's argument.
        words: The words that it may be.
        name: The argument's name.

    Raises:
        DataError: The argument is none of the words.
    """
    if not isinstance(value, str) or value not in words:
        choice = ", ".join(f'"{word}"' for word in words)
        raise DataError(f"{name} must be one of {choice}, not {shown(value)}")
    return value


def check_flag(value: object, name: str) -> bool:
    """Check that an app's argument is True or False, and return it.

    Without the check any text, even "no", would count as True.

    Args:
        value: The app's argument.
        name: The argument's name.

    Raises:
        DataError: The argument is neither True nor False.
    """
    if not isinstance(value, bool):
        raise DataError(f"{name} must be True or False, not {shown(value)}")
    return value


def without_texts(call: Callable[[], Result], failed: Callable[[str], FalaError]) -> Result:
    """Call other code with texts of the user; only the type and place of its error carry over.

    The message of a library's or an app's error may quote a text, and a traceback would print it.
    So that error is not the cause of FaLA's error either.

    Args:
        call: The library's function, or the app's.
        failed: Makes FaLA's error from the other error's type and place, in words.

    Raises:
        FalaError: The call failed.
        MemoryError: There is not enough memory, which is no fault of the code.
    """
    try:
        return call()
    except BaseException as error:
        if not is_failure(error):
            raise
        kind = type(error).__name__
        _, *inner = traceback.walk_tb(error.__traceback__)
        for frame, line in inner[-1:]:
            kind += f" in line {line} of {Path(frame.f_code.co_filename).name}"
    raise failed(kind)  # outside of the clause: inside, the other error would be its context


def is_failure(error: BaseException) -> bool:
    """Return whether an error says that a library or the app's code failed.

    Too little memory is no such failure. A panic in the Rust code of tokenizers is one, although it
    is not an Exception and its class cannot be imported.
    """
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def safe_line(text: object, longest: int = 500) -> str:
    """Return a foreign source's text as one short line that is safe to show.

    Libraries put names from a model or tokenizer into their messages, and a server its own words.
    A terminal would act on the control characters in them.

    Args:
        text: An error, or a text.
        longest: The number of characters that are kept.
    """
    return printable(" ".join(str(text).split())[:longest])


def printable(text: str) -> str:
    """Return a text as one line in which control characters are escaped.

    Args:
        text: The text, of any length.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in " ".join(text.splitlines())
    )
