import dataclasses
import json
import shutil
import signal

import pytest
import torch

import kill_training
import warm
from fala_export.base.errors import ExportError
from fala_export.training import checkpoints
from full_disk import files_of_at_most

pytestmark = pytest.mark.slow

BATCHES, EPOCHS = 8, 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a training on data "a", which ``whole`` finishes."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="module", autouse=True)
def whole(finished):
    """The result of a training without interruption."""
    return kill_training.train(finished, data="a")


def test_training_lowers_the_loss_and_leaves_the_best_epoch(whole):
    module, history = whole
    assert history.steps == BATCHES * EPOCHS
    assert list(history.validation) == [BATCHES * epoch for epoch in range(EPOCHS + 1)]
    assert history.validation[history.best_step] == min(history.validation.values())
    assert history.validation[history.best_step] < 0.5 * history.validation[0]
    assert not module.training


def test_a_step_adds_the_gradients_of_its_passes(whole, tmp_path):
    settings = dataclasses.replace(kill_training.SETTINGS, passes=2)
    module, history = kill_training.train(tmp_path, settings=settings)
    assert list(history.validation)[:3] == [0, BATCHES // 2, BATCHES]
    assert history.validation[history.best_step] < 0.5 * history.validation[0]
    assert not torch.equal(module.layer.weight, whole[0].layer.weight)


def test_the_start_is_kept_if_no_epoch_is_better(tmp_path):
    settings = dataclasses.replace(kill_training.SETTINGS, learning_rate=30.0, weight_decay=0.0)
    module, history = kill_training.train(tmp_path, settings=settings)
    assert (history.best_step, history.steps) == (0, 2 * BATCHES)  # stopped early, by patience
    assert torch.equal(module.layer.weight, kill_training.Plane().layer.weight)


def test_without_validation_the_last_epoch_is_kept(tmp_path):
    _, history = kill_training.train(tmp_path, validation=False)
    assert (history.best_step, history.validation) == (BATCHES * EPOCHS, {})


# 8 steps an epoch, a checkpoint after each: in an epoch, at its end, and after the last.
@pytest.mark.parametrize(
    ("point", "count"),
    [("step", 19), ("writing", 8), ("last", 16)],
)
def test_a_killed_training_resumes_to_the_same_weights(whole, tmp_path, point, count, capfd):
    warm.die(kill_training.train_and_die, tmp_path, point, count)
    resumed, history = kill_training.train(tmp_path, resume=True)
    assert "continuing from" in capfd.readouterr().err
    assert history == whole[1]
    for name, value in whole[0].state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert len(list(tmp_path.glob("checkpoint-*"))) <= 3


def test_a_finished_training_resumes_to_its_result_at_once(whole, finished):
    module, history = kill_training.train(finished, resume=True, data="a")
    assert history == whole[1]
    assert torch.equal(module.layer.weight, whole[0].layer.weight)


def test_a_damaged_checkpoint_is_not_used(whole, finished, tmp_path):
    """The training goes on from the one before, to the same weights."""
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
        work = shutil.copytree(finished, tmp_path / name)
        newest = max(work.glob("checkpoint-*"), key=lambda each: int(each.name[11:]))
        data = (newest / name).read_bytes()
        changed = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]
        (newest / name).write_bytes(changed if name == "model.safetensors" else data[:-20])
        module, history = kill_training.train(work, resume=True, data="a")
        assert history == whole[1]
        assert torch.equal(module.layer.weight, whole[0].layer.weight)


def test_a_damaged_best_checkpoint_is_named(finished, tmp_path):
    work = shutil.copytree(finished, tmp_path / "work")
    before, newest = sorted(work.glob("checkpoint-*"), key=lambda each: int(each.name[11:]))[-2:]
    state = json.loads((newest / "trainer_state.json").read_text())
    for entry in state["log_history"]:
        if "eval_loss" in entry and entry["step"] != int(before.name[11:]):
            entry["eval_loss"] = 1e6
    (newest / "trainer_state.json").write_text(json.dumps(state))
    checkpoints.seal(newest)
    (before / "model.safetensors").write_bytes(b"")
    with pytest.raises(ExportError, match=f"{before.name}: is damaged; remove"):
        kill_training.train(work, resume=True, data="a")


def test_checkpoints_are_neither_overwritten_nor_used_by_another_training(finished):
    with pytest.raises(ExportError, match="--resume"):
        kill_training.train(finished, data="a")
    with pytest.raises(ExportError, match="data was 'a', but is 'b'"):
        kill_training.train(finished, resume=True, data="b")
    settings = dataclasses.replace(kill_training.SETTINGS, learning_rate=0.1)
    with pytest.raises(ExportError, match=r"learning_rate was 0\.3, but is 0\.1"):
        kill_training.train(finished, resume=True, settings=settings, data="a")


def test_a_folder_is_locked_while_another_process_trains(whole, tmp_path):
    """A second resume does not delete the other process's half-written checkpoint."""
    work = tmp_path / "work"
    code = "import kill_training, sys; kill_training.train_to(*sys.argv[1:])"
    holder = warm.Program(code, work, tmp_path / "there", folder=tmp_path)
    warm.until((tmp_path / "there").exists, holder)
    (half,) = work.glob("checkpoint-*")
    try:
        for resume in (False, True):
            with pytest.raises(ExportError, match="another process is working in it; wait"):
                kill_training.train(work, resume=resume)
        assert half.is_dir() and holder.poll() is None
    finally:
        holder.send_signal(signal.SIGKILL)  # which releases the lock
    holder.wait(60)
    assert kill_training.train(work, resume=True)[1] == whole[1]


def test_a_processor_trains_in_bfloat16_by_accelerates_setting(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    module, history = kill_training.train(tmp_path)
    assert history.precision == "bf16"
    assert history.validation[0] == pytest.approx(whole[1].validation[0], rel=0.01)
    assert history.validation[history.best_step] < 0.5 * history.validation[0]
    assert not torch.equal(module.layer.weight, whole[0].layer.weight)
    assert module.layer.weight.dtype == torch.float32
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    with pytest.raises(ExportError, match="precision was 'bf16', but is None"):
        kill_training.train(tmp_path, resume=True)


def test_an_unsupported_precision_is_rejected_for_training(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ExportError, match="PRECISION must be bf16 or no without a GPU, not fp16"):
        kill_training.train(tmp_path)


def test_a_diverging_training_is_an_error(tmp_path, monkeypatch):
    forward = kill_training.Plane.forward

    def broken(self, inputs, targets):
        return forward(self, inputs * float("nan"), targets)

    monkeypatch.setattr(kill_training.Plane, "forward", broken)
    with pytest.raises(ExportError, match="diverges"):
        kill_training.train(tmp_path)


def test_an_unwritable_checkpoint_ends_in_one_line(tmp_path):
    unwritable = pytest.raises(ExportError, match="a checkpoint cannot be written")
    with files_of_at_most(4_000), unwritable as raised:
        kill_training.train(tmp_path)
    assert "\n" not in str(raised.value)
    kill_training.train(tmp_path, resume=True)


def test_an_unwritable_folder_ends_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be used"):
        kill_training.train(tmp_path / "file")
