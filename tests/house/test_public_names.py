import fala


def test_the_public_door():
    """Apps are written against these names: a change here is a change for them."""
    assert fala.__all__ == [
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
        "BundleVersionError",
        "DataError",
        "Device",
        "DeviceError",
        "DimensionError",
        "ExportError",
        "ExternalDataError",
        "FalaError",
        "Head",
        "LearnReport",
        "Manifest",
        "Match",
        "PersonalModel",
        "PopulationPrior",
        "Report",
        "RowError",
        "Selection",
        "View",
        "add_bridge",
        "add_prior",
        "fit_bridge",
        "fit_head",
        "fit_personal",
        "select",
        "write_bundle",
        "write_release",
    ]


def test_every_public_name_is_there_and_documented():
    for name in fala.__all__:
        assert getattr(fala, name).__doc__


def test_the_door_of_a_device():
    """What the README shows of it."""
    names = {name for name in vars(fala.Device) if not name.startswith("_")}
    assert names == {
        "can_roll_back", "close", "create", "decide", "labels", "learn", "model", "name", "open",
        "predict", "refine", "replace", "rollback", "task", "threshold", "view",
    }  # fmt: skip


def test_every_error_is_a_fala_error():
    errors = [getattr(fala, name) for name in fala.__all__ if name.endswith("Error")]
    assert all(issubclass(error, fala.FalaError) for error in errors)
