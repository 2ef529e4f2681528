"""No text of the user is in an error, a log, a report, or a file where it does not belong."""

import io
import json
import logging
import tempfile

import numpy as np
import pytest

import bundles
import fala
import fala_sim
from bridged import TEXTS
from bundles import MAX_LENGTH, WORDS, make_head, onnx_model, tokenizer_json
from devices import everything, sql
from fala import Budget, Bundle, BundleFormatError, DataError, Device, DeviceError
from fala.backbones import OnnxEncoder
from fala.model.links import TAGS
from fala_export import fit_head, write_external
from secrets_kept import SECRET, Loud, said_by


def key():
    return bytes(range(32))


@pytest.fixture
def quiet(tmp_path, monkeypatch, caplog):
    """A check that the text is in no log, in no file of the folder, and in no temporary file."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def check(*reports):
        assert SECRET not in caplog.text and SECRET not in repr(reports)
        assert SECRET.encode() not in everything(tmp_path)
        assert SECRET.encode("utf-16-le") not in everything(tmp_path)

    return check


@pytest.mark.parametrize("kind", [BundleFormatError, fala.DeviceChangedError, OSError])
def test_an_error_of_the_apps_progress_is_the_apps_alone(tmp_path, releases, quiet, kind):
    """No release is blamed for it, nothing is tried again, and its message is not kept."""
    error, stages = kind(f"{SECRET} is my text"), []

    def progress(stage, done, total):
        stages.append(stage)
        if stage == last:
            raise error

    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:10], ["0", "1"] * 5)
        device.replace(releases["mid"], Budget(1))
        for last, call in (
            ("forward", lambda: device.learn(["a new text"], ["1"], progress=progress)),
            ("forward", lambda: device.refine(Budget(3), progress=progress)),
            ("solve", lambda: device.replace(releases["new"], progress=progress)),
        ):
            with pytest.raises(kind) as caught:
                call()
            assert caught.value is error and stages.count(last) == 1
            stages.clear()
            assert error.__context__ is None and error.__cause__ is None
        status = device.status()
        assert (status.release, status.on_trial, status.fell_back) == ("mid", True, None)
        quiet(device)
    quiet()


@pytest.mark.parametrize(
    "options", [{}, {"keep_text": "never"}, {"key": key}], ids=["plain", "never", "key"]
)
def test_a_life_says_nothing(tmp_path, releases, quiet, capfd, options):
    """No log, report or stream has the text; no file has it but where it is kept, until it goes."""
    mine, reports = [f"{SECRET} {text}" for text in TEXTS[:20]], []
    with Device.create(tmp_path / "device", releases["old"], **options) as device:
        for step in (
            lambda: device.remember(mine[:2], ["1", "0"]),
            lambda: device.learn(mine, ["0", "1"] * 10), device.fit,
            lambda: device.predict([*mine, f"{SECRET} is never kept"]),
            lambda: device.predict_proba(mine),
            lambda: device.preview(releases["mid"]),
            lambda: device.replace(releases["mid"], Budget(5), accept="better-than-old"),
            lambda: device.refine(Budget(5)), lambda: device.unlabel(mine[:1]), device.rollback,
            lambda: device.learn(mine[1:3], ["0", "0"]), device.rollback, device.confirm,
            lambda: device.forget(reports[0]), lambda: device.forget(where=lambda row: True),
            device.status,
        ):  # fmt: skip
            reports.append(step())
            if options:  # texts are not kept, or they are encrypted
                quiet(reports, device)
        assert not list(device.examples())
        quiet(reports, device)
    assert Device.examine(tmp_path / "device", key=options.get("key")).whole
    quiet()
    assert SECRET not in "".join(capfd.readouterr())


def test_the_text_that_a_tokenizer_panics_on_is_not_quoted():
    """The library's message has the text; the normalizer deletes a whole token of it."""
    tokenizer = json.loads(tokenizer_json([*WORDS, "\u200d"]))
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": "\u200d"}, "content": ""}
    tokenizer["added_tokens"].append({
        "id": len(tokenizer["model"]["vocab"]) - 1, "content": "\u200d", "single_word": False,
        "lstrip": False, "rstrip": True, "normalized": True, "special": False,
    })  # fmt: skip
    model = onnx_model([*WORDS, "\u200d"]).SerializeToString()
    encoder = OnnxEncoder(model, json.dumps(tokenizer).encode(), max_length=MAX_LENGTH)
    assert encoder.encode(["a good film"]).shape == (1, encoder.dimension)
    with pytest.raises(BundleFormatError, match="tokenizer fails on a text: Panic") as caught:
        encoder.encode([f"\u00a3 {SECRET} costs \u00a3"])
    assert SECRET not in said_by(caught.value)


def test_the_token_that_a_graph_fails_on_is_not_quoted(capfd):
    """ONNX Runtime's message has the token, and it writes a log of its own."""
    encoder = OnnxEncoder(
        onnx_model(WORDS[:-1]).SerializeToString(), tokenizer_json(), max_length=MAX_LENGTH
    )
    token = encoder.vocabulary[-1]
    assert encoder.encode(["a good film"]).shape == (1, encoder.dimension)
    with pytest.raises(BundleFormatError, match="the model fails on a text: ") as caught:
        encoder.encode([WORDS[-1]])
    assert str(token) not in str(caught.value) and f"idx={token}" not in said_by(caught.value)
    assert f"idx={token}" not in capfd.readouterr().err


# The app's own encoder


def test_an_encoder_that_says_its_inputs_is_not_quoted(tmp_path, quiet):
    failing = []

    def encoder(inputs):
        if failing:
            raise ValueError(*inputs)
        return [[len(text), text.count("e")] for text in inputs]

    own = {"labels": ["0", "1"], "encoder": encoder, "keep_text": "never"}
    with Device.create(tmp_path / "device", **own) as device:
        device.learn(TEXTS[:10], ["0", "1"] * 5)
        failing.append(True)
        for call in (device.predict, device.rank, lambda texts: device.learn(texts, ["1"])):
            with pytest.raises(fala.EncoderError) as caught:
                call([f"{SECRET} in a text"])
            assert SECRET not in said_by(caught.value)
        quiet(device)
    quiet()


# Damage, and files that the user writes


def test_a_damaged_text_is_not_quoted(device, path, quiet):
    device.remember([f"{SECRET} is damaged"])
    sql(path, "UPDATE texts SET text = CAST(text || x'ff' AS TEXT) WHERE text LIKE 'zqs%'")
    calls = (lambda: list(device.examples()), device.fit, lambda: device.export_data("x.jsonl"))
    for call in calls:
        with pytest.raises(DeviceError) as caught:
            call()
        assert SECRET not in said_by(caught.value)


@pytest.mark.parametrize("kind", ["ascii", "closed", "loud"])
def test_rows_that_cannot_be_written_are_not_quoted(device, kind):
    device.remember([f"{SECRET} \u00e9"])
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    if kind == "closed":
        stream.close()
    if kind == "loud":
        stream.write = Loud().fail
    with pytest.raises(DataError, match="cannot be written to the stream") as caught:
        device.export_data(stream)
    assert SECRET not in said_by(caught.value) and "\\xe9" not in said_by(caught.value)


def test_a_tag_list_of_any_depth_is_refused_by_name(tmp_path):
    """The store was edited."""
    head = make_head(labels=("rude", "funny"), link=TAGS)
    release = bundles.write_word_vector_release(tmp_path / "tags.fala", head)
    with Device.create(tmp_path / "device", release.path) as device:
        device.remember(TEXTS[:2], [{"rude"}, {"funny"}])
        for label in ("[" * 100_000, "[" * 500 + "]" * 500, '{"a": 1}', "NaN]", f'["{SECRET}'):
            sql(tmp_path / "device", "UPDATE examples SET label = ? WHERE id = 1", label)
            with pytest.raises(DataError, match="label of example 1 is damaged") as caught:
                device.export_data(io.StringIO())
            assert SECRET not in said_by(caught.value)
        assert device.forget([1]).count == 1 and device.export_data(io.StringIO()) == 1


def test_a_vendors_examples_are_not_quoted(tmp_path, releases):
    bundle, texts = Bundle.open(releases["mid"]), [f"{SECRET} is good", f"{SECRET} is bad"]
    calls = (
        lambda: fit_head(bundle.backbone(), texts, [0, 1], embeddings={texts[0]: np.ones(12)}),
        lambda: fit_head(bundle.backbone(), texts, texts[:1] * 2),
        lambda: fit_head(bundle.backbone(), texts, [{texts[0]}] * 2, exclusive=False),
        lambda: write_external(tmp_path / "x.fala", "n", "1", bundle.head(), {texts[0]: texts}),
        lambda: fala_sim.sample_release(texts[0]),
    )
    for call in calls:
        with pytest.raises(DataError) as caught:
            call()
        assert SECRET not in said_by(caught.value)
