import fala


def test_the_public_door():
    """Apps are written against these names: a change here is a change for them."""
    assert fala.__all__ == [
        "AdapterInfo",
        "Backbone",
        "Bridge",
        "Budget",
        "BudgetError",
        "Bundle",
        "BundleDigestError",
        "BundleError",
        "BundleFilesError",
        "BundleFormatError",
        "BundleMismatchError",
        "BundleSignatureError",
        "BundleVersionError",
        "CancelledError",
        "Comparison",
        "Correlation",
        "Counts",
        "DataError",
        "Device",
        "DeviceChangedError",
        "DeviceError",
        "Difference",
        "DimensionError",
        "DownloadError",
        "EncoderError",
        "Example",
        "ExpiredUpdateError",
        "ExportError",
        "ExternalDataError",
        "FalaError",
        "Forgotten",
        "Head",
        "InstantReport",
        "Item",
        "LearnReport",
        "Manifest",
        "Match",
        "MissingAdapterError",
        "MissingExtraError",
        "OlderReleaseError",
        "Pair",
        "PersonalModel",
        "PopulationPrior",
        "Preview",
        "Progress",
        "PromptReport",
        "RepairReport",
        "Report",
        "RolledBackError",
        "RowError",
        "Selection",
        "SlowDownloadError",
        "StoredExample",
        "UnknownAdapterError",
        "UntrustedUpdateError",
        "UpdateError",
        "UpdateLimits",
        "WorseModelError",
        "add_bridge",
        "add_prior",
        "fit_bridge",
        "fit_head",
        "fit_personal",
        "sample_release",
        "select",
        "write_bundle",
        "write_release",
    ]


def test_every_public_name_is_there_and_documented():
    """Names of types alone (``Example``, ``Progress``) carry none in Python."""
    aliases = {"Example", "Progress"}
    for name in fala.__all__:
        assert name in aliases or getattr(fala, name).__doc__


def test_the_door_of_a_device():
    """What the README shows of it."""
    names = {name for name in dir(fala.Device) if not name.startswith("_")}
    assert names == {
        "adapter", "adapters", "can_roll_back", "close", "confirm", "create", "decide",
        "delete_adapter", "erase", "examine", "examples", "export_data", "fell_back", "fit",
        "forget", "labels", "learn", "load_adapter", "model", "name",
        "on_trial", "open", "positive", "predict", "preview", "rank", "refine", "remember",
        "repair", "replace", "rollback", "rotate_key", "task", "threshold", "update",
    }  # fmt: skip


def test_every_error_is_a_fala_error():
    errors = [getattr(fala, name) for name in fala.__all__ if name.endswith("Error")]
    assert all(issubclass(error, fala.FalaError) for error in errors)
