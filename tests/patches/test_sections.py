"""``config/train.yaml`` works for every task and criterion, and an option that the criterion lacks is refused."""

import pytest
from corpus import USER_DIR
from fairseq.dataclass.initialize import add_defaults
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_attnvariants.patches.training.sections import fitting
from fairseq_attnvariants.registry import ConfigurationError


def completed(user_dir=USER_DIR, **given):
    """Return the configuration of fairseq-hydra-train from ``train.yaml`` and overrides, by section."""
    cfg = OmegaConf.merge(OmegaConf.load(f"{USER_DIR}/config/train.yaml"), given)
    cfg.common.user_dir, cfg.task.data = str(user_dir), "data"
    cfg.optimization.sentence_avg = False
    cfg = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))
    add_defaults(cfg)
    return cfg


@pytest.mark.parametrize("option, value", [("rdrop_weight", 2), ("step_decay_weight", 2), ("typo", 2), ("typo", None)])
def test_an_option_that_the_criterion_lacks_is_refused(option, value):
    with pytest.raises(ConfigurationError, match=f"criterion.{option}: the criterion label_smoothed_cross_entropy has"):
        completed(criterion={option: value})


def test_an_option_that_the_criterion_has_is_taken():
    assert completed().criterion.label_smoothing == 0.1  # not the criterion's default
    found = completed(criterion=dict(report_accuracy=True, label_smoothing=0.2)).criterion
    assert found._name == "label_smoothed_cross_entropy" and found.report_accuracy and found.label_smoothing == 0.2
    named = dict(_name="label_smoothed_cross_entropy_with_costs", step_decay_weight=2)
    assert completed(criterion=named).criterion.step_decay_weight == 2


@pytest.mark.parametrize(("section", "given", "message"), [
    ("optimization", {"max_updates": 9}, r"optimization.max_updates: .* no such option .did you mean max_update"),
    ("optimizer", {"_name": "adamm"}, r"optimizer._name=adamm: .* no such optimizer here .did you mean adam\?"),
    ("task", {"_name": "translatio"}, "task._name=translatio: .* no such task here .did you mean translation"),
    ("criterion", {"_name": "foo"}, "criterion._name=foo: .* no such criterion"),
    ("lr_scheduler", {"_name": "inverse"}, "lr_scheduler._name=inverse: .* no such lr_scheduler"),
])  # fmt: skip
def test_a_name_that_nothing_has_is_refused(section, given, message):
    """hydra accepts any option after a plus, and nothing would read it."""
    with pytest.raises(ConfigurationError, match=message):
        completed(**{section: given})


@pytest.mark.parametrize("section, option", [
    ("model", "--arch"), ("task", "--task"), ("optimizer", "--optimizer"), ("lr_scheduler", "--lr-scheduler"),
])  # fmt: skip
def test_a_component_without_a_name_is_refused(section, option):
    with pytest.raises(ConfigurationError, match=f"^{option} is needed .by hydra {section}._name.$"):
        completed(**{section: {"_name": None}})


@pytest.mark.parametrize("section, option", [
    ("model", "dropout"), ("criterion", "label_smoothing"), ("optimizer", "adam_eps"), ("lr_scheduler", "lr_shrink"),
])  # fmt: skip
def test_a_value_of_a_wrong_type_is_refused_by_its_key(section, option):
    """omegaconf names the option without its section."""
    with pytest.raises(ConfigurationError, match=f"^{section}.{option}: Value 'high' of type 'str' could not be"):
        completed(**{section: {option: "high"}})


@pytest.mark.parametrize("section, given, message", [
    ("dataset", {"batch_size": 0}, "--batch-size 0: the number is 1 or above"),
    ("dataset", {"max_tokens": -1}, "--max-tokens -1: the number is 1 or above"),
    ("dataset", {"batch_size_valid": 0}, "--batch-size-valid 0: the number is 1 or above"),
    ("dataset", {"max_tokens_valid": 0}, "--max-tokens-valid 0: the number is 1 or above"),
    ("dataset", {"num_workers": -1}, "--num-workers -1: the number is 0 or above"),
    ("dataset", {"batch_size": None}, "--batch-size or --max-tokens is needed"),
    ("common", {"log_interval": 0}, "--log-interval 0: the number is 1 or above"),
    ("optimization", {"update_freq": [2, 0]}, "--update-freq 0: the number is 1 or above"),
    ("optimization", {"update_freq": []}, "--update-freq: the list is empty"),
    ("optimization", {"lr": [-1]}, "--lr -1: the number is 0 or above"),
    ("optimization", {"lr": [float("nan")]}, "--lr nan: the number is 0 or above"),
])  # fmt: skip
def test_a_number_with_which_nothing_can_be_trained_is_refused(section, given, message):
    """Some end in a division by 0; others train on one batch of everything, or end at once without an error."""
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        completed(**{section: given})


def test_options_of_another_task_are_left_out():
    found = completed(task=dict(_name="string_transduction", features_column=3)).task
    assert found.features_column == 3 and "eval_bleu" not in found and found.max_source_positions == 1024


@pytest.mark.parametrize(("section", "name", "lacking", "changed"), [
    ("task", "string_transduction", "left_pad_source", False),
    ("criterion", "cross_entropy", "label_smoothing", 0.2),
    ("optimizer", "nag", "adam_betas", "(0.9, 0.99)"),
])  # fmt: skip
def test_options_that_train_yaml_lists_for_others_are_left_out_unless_they_were_changed(
    section, name, lacking, changed
):
    assert lacking not in completed(**{section: dict(_name=name)})[section]
    with pytest.raises(ConfigurationError, match=f"{section}.{lacking}: the {section} {name} has no such option"):
        completed(**{section: {"_name": name, lacking: changed}})


def test_a_component_without_a_dataclass_takes_any_option():
    found = completed(optimizer=dict(_name="sgd"), model=dict(_name="lstm", dropout=0.2))
    assert found.optimizer.adam_eps == 1e-8 and found.model.dropout == 0.2
    assert "encoder_embed_dim" not in found.model  # stock models have defaults, and do not accept null
    assert completed().model.encoder_embed_dim is None


@pytest.mark.parametrize("name", ["transformer_lm", "transformer_ulm"])
def test_a_model_of_fairseq_takes_its_own_defaults(name):
    """An option whose default is null is one that the model has."""
    defaults = OmegaConf.to_container(OmegaConf.structured(MODEL_DATACLASS_REGISTRY[name]))
    own = {option: value for option, value in defaults.items() if not str(value).startswith("${")} | {"_name": name}
    kept = fitting(OmegaConf.create(own), {}, "model")
    assert None in own.values() and kept == {option: value for option, value in own.items() if value is not None}


def test_an_option_that_a_model_lacks():
    for option, said in (("encoder_layer", " .did you mean encoder_layers..: correct it"), ("foo", ": correct it")):
        with pytest.raises(ConfigurationError, match=f"model.{option}: the model rnnsearch has no such option{said}"):
            completed(model={option: 2})


def test_what_the_criterion_of_an_architecture_lacks_is_left_out_where_another_section_has_it(monkeypatch):
    """``sentence_avg`` comes from ``optimization``, and was not changed."""
    monkeypatch.setattr("fairseq_attnvariants.patches.training.sections.default_criterion", lambda name: "nat_loss")
    found = completed().criterion
    assert found._name == "nat_loss" and "sentence_avg" not in found
    assert completed(criterion=dict(label_smoothing=0.2)).criterion.label_smoothing == 0.2


def test_names_of_somebody_elses_folder_are_known(tmp_path):
    (tmp_path / "__init__.py").write_text("raise RuntimeError('imported first')")
    with pytest.raises(RuntimeError, match="imported first"):
        completed(tmp_path, criterion=dict(_name="mine"))


def test_an_unknown_architecture_has_no_criterion():
    """An unknown name is refused when the model is built; until then, options of its criterion are unknown."""
    assert completed(model=dict(_name="typo"), criterion=dict(rdrop_weight=2)).criterion._name is None


def test_tasks_of_stock_fairseq_without_a_dataclass_stay():
    assert completed(task=dict(_name="semisupervised_translation")).task._name == "semisupervised_translation"
