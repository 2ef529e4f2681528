"""Errors are of one line, and say how to add an extra by the note of an installer (PEP 610)."""

import json
import runpy
import shutil

import pytest

import fala.base.errors
from checkout import ROOT
from fala.base.errors import MissingExtraError, install_hint, needs, safe_line

COMMIT = "0" * 40


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        ({"url": "file:///a%20b/FaLA", "dir_info": {"editable": True}},
         "pip install -e '.[ota]' in /a b/FaLA"),
        ({"url": "file:///src/FaLA", "dir_info": {}}, "pip install '.[ota]' in /src/FaLA"),
        ({"url": "file:///a%20b/fala_sdk-1-py3-none-any.whl", "archive_info": {}},
         "pip install '/a b/fala_sdk-1-py3-none-any.whl[ota]'"),
        ({"url": "https://example.org/fala_sdk-1.whl", "archive_info": {}},
         "pip install 'fala-sdk[ota] @ https://example.org/fala_sdk-1.whl'"),
        ({"url": "https://example.org/fala", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
         f"pip install 'fala-sdk[ota] @ git+https://example.org/fala@{COMMIT}'"),
        ({"url": "ssh://git@example.org/fala", "subdirectory": "py",
          "vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "v1"}},
         "pip install 'fala-sdk[ota] @ git+ssh://git@example.org/fala@v1#subdirectory=py'"),
        # A shell reads it as one argument.
        ({"url": "file:///it's/$HOME/x.whl", "archive_info": {}},
         """pip install '/it'"'"'s/$HOME/x.whl[ota]'"""),
    ],
)  # fmt: skip
def test_the_hint_names_where_it_is_installed_from(tmp_path, monkeypatch, origin, hint):
    write_installed(tmp_path, json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    assert install_hint("ota") == hint
    with pytest.raises(MissingExtraError) as raised, needs("it needs one", extra="ota"):
        raise ImportError("no tuf")
    assert str(raised.value) == f"it needs one: {hint} (no tuf)"


@pytest.mark.parametrize("note", [None, "", "{", "[]"])
def test_without_a_note_a_clone_is_named_and_else_the_wheel(tmp_path, monkeypatch, note):
    write_installed(tmp_path, note)
    monkeypatch.syspath_prepend(tmp_path)
    assert install_hint("ota") == f"pip install -e '.[ota]' in {ROOT}"
    alone = tmp_path / "site-packages" / "fala" / "base" / "errors.py"
    alone.parent.mkdir(parents=True)
    shutil.copyfile(fala.base.errors.__file__, alone)
    hint = runpy.run_path(str(alone))["install_hint"]("ota")
    assert hint == "install the wheel of fala-sdk with its extra [ota]"


def test_safe_line_makes_one_printable_line():
    assert safe_line("a\n\x1b[31m b\u202e") == "a \\x1b[31m b\\u202e"
    assert len(safe_line("x" * 10_000)) == 500


def write_installed(folder, note):
    """Write what an installer leaves of a distribution."""
    noted = folder / "fala_sdk-1.dist-info"
    noted.mkdir()
    (noted / "METADATA").write_text("Metadata-Version: 2.1\nName: fala-sdk\nVersion: 1\n")
    if note is not None:
        (noted / "direct_url.json").write_text(note)
