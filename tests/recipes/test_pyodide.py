"""The device's life that ``recipes/pyodide`` runs in Pyodide, in this Python."""

import runpy

from checkout import ROOT


def test_a_device_lives_with_numpy_alone(tmp_path, capsys):
    main = runpy.run_path(str(ROOT / "recipes" / "pyodide" / "walk.py"))["main"]
    main(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    steps = ["created", "learned", "replaced", "refined", "forgot", "opened", "examined"]
    assert [line.split()[2].rstrip(":") for line in printed] == steps
    assert all(line.endswith("100% right") for line in printed[1:-1])
    main(tmp_path)
    assert capsys.readouterr().out.splitlines()[0].endswith("92 examples: 100% right")
