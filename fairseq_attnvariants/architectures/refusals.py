"""Options that cannot work, or not together: each is refused by its name, with the reason."""

import dataclasses
import enum
import importlib.util
import os
import shutil
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple

import torch
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask

from ..nn.attention import NORMALIZERS, SCORES
from ..nn.cells import CELLS, AdaptiveGRUCell, DoubledGRUCell, GRUCell
from ..nn.windows import WINDOWS
from ..registry import ConfigurationError
from .derived import (
    bidirectional_layers,
    cell_options,
    chosen_parts,
    filters,
    histories,
    layers_inside,
    source_widths,
    two_levels,
)
from .options import AttentionRNNConfig, choices, described, flag, is_of_type, least_depth, tied
from .part_args import part_arguments
from .variants import VARIANTS


class Refusal(NamedTuple):
    """A combination that makes no sense."""

    found: Callable[[Any], Any]
    """of the options, and what they imply, as :func:`check` gives them"""
    reason: str
    """with the options in braces"""


REFUSALS = [
    Refusal(lambda o: o.idle, "{idle}, or leave it out"),
    Refusal(
        lambda o: o.decoder_transition_depth < o.least_depth,
        "--decoder-transition-depth must be at least {least_depth} with --decoder-transition {decoder_transition}, "
        "which has as many cells, not {decoder_transition_depth}",
    ),
    Refusal(
        lambda o: o.tied and o.decoder_out_embed_dim != o.decoder_embed_dim,
        "tied embeddings need --decoder-out-embed-dim ({decoder_out_embed_dim}) equal to --decoder-embed-dim "
        "({decoder_embed_dim}); leave it out and it follows",
    ),
    Refusal(
        lambda o: o.share_all_embeddings and o.encoder_embed_dim != o.decoder_embed_dim,
        "--share-all-embeddings needs --encoder-embed-dim ({encoder_embed_dim}) equal to --decoder-embed-dim "
        "({decoder_embed_dim})",
    ),
    Refusal(
        lambda o: (
            o.share_all_embeddings
            and (
                (o.encoder_embed_path or None) != (o.decoder_embed_path or None)
                or o.encoder_freeze_embed != o.decoder_freeze_embed
            )
        ),
        "--share-all-embeddings has one matrix: give both sides the same --encoder-embed-path and "
        "--decoder-embed-path, and freeze both or neither",
    ),
    # scores
    Refusal(
        lambda o: o.unprojected and {o.widths.lower, o.widths.top} != {o.decoder_hidden_size},
        "--attention-score {attention_score} multiplies the decoder's state by annotations, so they must be "
        "equally wide, not {decoder_hidden_size} and {unequal}: set --decoder-hidden-size (an annotation is twice as "
        "wide as --encoder-hidden-size, and --bridge-source adds an embedding), or use --attention-score bilinear",
    ),
    Refusal(
        lambda o: o.unprojected and o.two_levels and not o.attention_via_unguided,
        "--attention-via guides the lower level by what it adds to a projected query, and --attention-score "
        "{attention_score} has none; use scaled, or add --attention-via-unguided",
    ),
    Refusal(
        lambda o: o.headed and o.attention_dim % o.attention_heads,
        "--attention-heads {attention_heads} must divide --attention-dim, which is {attention_dim}",
    ),
    Refusal(
        lambda o: o.headed and o.two_levels and o.attention_via_dim % o.attention_heads,
        "--attention-heads {attention_heads} must divide --attention-via-dim, which is {attention_via_dim}",
    ),
    Refusal(
        lambda o: o.package and importlib.util.find_spec(o.package) is None,
        "--attention-normalizer {attention_normalizer} needs the package {package}: pip install {package}",
    ),
    Refusal(
        lambda o: o.same_units and o.unequal_units,
        "--attention-window {attention_window} looks near source position i at target position i, and the source of "
        "{unequal_units}: use --attention-window predictive, or none",
    ),
    # cells
    Refusal(
        lambda o: o.decoder_condition and o.beside_state,
        "--decoder-condition adds to a GRU's state (Feng et al. 2016, section 5) and is not defined for --decoder-cell "
        "{decoder_cell}; use --decoder-cell {one_state}",
    ),
    Refusal(
        lambda o: o.context_gate != "none" and o.beside_state,
        "--context-gate scales what a GRU reads and keeps (Tu et al. 2017) and is not defined for --decoder-cell "
        "{decoder_cell}, which has a memory beside its state; use --decoder-cell {one_state}",
    ),
    Refusal(
        lambda o: o.doubled,
        "{doubled} is a control for how large adaptive_gru's sums are at the start, which {scaling} changes as well: "
        "leave one of them out",
    ),
    Refusal(
        lambda o: o.adaptive_gru_released and not (o.adaptive_decoder and o.decoder_transition == "conditional"),
        "--adaptive-gru-released changes the second cell of --decoder-transition conditional with --decoder-cell "
        "adaptive_gru: add both (--arch adaptive_gru has them), or leave it out",
    ),
    Refusal(
        lambda o: o.adaptive_gru_released and o.scaling_decoder,
        "--adaptive-gru-released leaves biases unweighed, which {scaling_decoder} makes part of what is weighed: leave "
        "one of them out",
    ),
    # attention via attention
    Refusal(
        lambda o: o.encoder_type == "hierarchical" and not o.attention_via,
        "--encoder-type hierarchical has annotations of words and of characters, and only --attention-via attends to "
        "both: add it",
    ),
    Refusal(
        lambda o: o.attention_via and o.encoder_type != "hierarchical" and o.encoder_layers < 2,
        "--attention-via needs two levels of annotations: --encoder-layers 2 (or more), or --encoder-type hierarchical",
    ),
    Refusal(
        lambda o: o.attention_via_words_alone and not (o.attention_via and o.encoder_type == "hierarchical"),
        "--attention-via-words-alone leaves characters out of --attention-via with --encoder-type hierarchical: add "
        "both (--arch ava has them), or leave it out",
    ),
    Refusal(
        lambda o: o.attention_via_words_alone and o.attention_via_unguided,
        "--attention-via-unguided changes attention to characters, of which --attention-via-words-alone has none: "
        "leave one of them out",
    ),
    Refusal(
        lambda o: o.attention_via_unguided and not o.attention_via,
        "--attention-via-unguided changes --attention-via, which is not given: add it",
    ),
    Refusal(
        lambda o: o.copying and o.unequal_units,
        "--copying writes the source symbol that is attended to, and the source of {unequal_units}: leave it out",
    ),
    # layers
    Refusal(
        lambda o: o.encoder_bidirectional_layers > o.encoder_layers,
        "--encoder-bidirectional-layers {encoder_bidirectional_layers}: there are --encoder-layers {encoder_layers}; "
        "use 0 for all",
    ),
    Refusal(
        lambda o: o.one_direction <= o.encoder_layers and 0 < o.residuals <= o.one_direction,
        "--residuals {residuals} adds inputs to outputs from that layer on, and with --encoder-bidirectional-layers "
        "{encoder_bidirectional_layers} the input of encoder layer {one_direction} is twice as wide as its output; use "
        "{above} or above",
    ),
    Refusal(
        lambda o: o.residuals > max(o.encoder_layers, o.decoder_layers),
        "--residuals {residuals} begins above the highest layer: there are --encoder-layers {encoder_layers} and "
        "--decoder-layers {decoder_layers}; use 0, or a layer that is there",
    ),
    Refusal(
        lambda o: o.one_layer,
        "{one_layer} is about the decoder's layers above the first, and with --decoder-layers 1 there is none: use 2 "
        "or more, or leave it out",
    ),
    Refusal(
        lambda o: o.readout_all_layers and o.inside < o.decoder_layers,
        "--readout-all-layers reads layers that step with attention, and with --decoder-transition "
        "{decoder_transition} only the lowest one does; use late or stacked",
    ),
    Refusal(
        lambda o: o.context_to_layers and o.decoder_transition == "late",
        "--context-to-layers gives the layers above the first the context that it attended to, and with "
        "--decoder-transition late attention comes after all layers; use simple, conditional or stacked",
    ),
    Refusal(
        lambda o: o.decoder_transition == "late" and o.reader,
        "{reader} changes the cell that reads the context, and with --decoder-transition late there is none after "
        "attention; use simple or conditional",
    ),
    Refusal(
        lambda o: o.decoder_transition == "stacked" and o.decoder_condition,
        "--decoder-condition adds to the state of one cell, and with --decoder-transition stacked every layer has one; "
        "use simple or conditional",
    ),
    # bridges
    Refusal(
        lambda o: (
            o.encoder_type != "bidirectional" and (o.bridge_source or o.bridge_target or o.bridge_direct != "none")
        ),
        "--bridge-source, --bridge-target and --bridge-direct bridge the embeddings of words, and --encoder-type "
        "{encoder_type} has embeddings of characters only; use --encoder-type bidirectional",
    ),
    Refusal(
        lambda o: o.bridge_direct != "none" and not (o.bridge_source or o.bridge_direct_alone),
        "--bridge-direct without --bridge-source consistently worsened translation (Kuang et al. 2018, section 2.3: "
        "a plain model's embeddings are too heterogeneous to be constrained); add --bridge-source, or "
        "--bridge-direct-alone to do it nevertheless",
    ),
    Refusal(
        lambda o: o.bridge_direct_alone and o.bridge_direct == "none",
        "--bridge-direct-alone allows --bridge-direct, which is not given: add it",
    ),
    Refusal(
        lambda o: o.adaptive_output_swapped and not o.adaptive_output,
        "--adaptive-output-swapped changes --adaptive-output, which is not given: add it",
    ),
]


def idle(cfg) -> str:
    """The beginning of a sentence about an option of parts that was set though none of them is there; or nothing."""
    read = {option for parts in chosen_parts(cfg).values() for part in parts for option in part.flags.values()}
    for choice, table in described("names").items():
        readers: Dict[str, List[str]] = {}
        for name, part in table.items():
            for option in part.flags.values():
                readers.setdefault(option, []).append(name)
        for option, names in readers.items():
            value = getattr(cfg, option)
            if option not in read and value not in usual(option):
                return f"{flag(option)} {value} is of {flag(choice)} {' or '.join(names)} alone: add that"
    return ""


def unread(cfg) -> List[str]:
    """A sentence for each option that has a value which no architecture gives it, though nothing reads it.

    It is not refused, as checkpoints may have such.
    """
    cells = [CELLS[getattr(cfg, option)] for option in cell_options(cfg)]
    in_histories = not {"state", "coverage_gru"}.isdisjoint(histories(cfg))
    convolutional = "encoder_filters", "encoder_pooling", "encoder_highway_layers"
    hierarchical = "encoder_char_cell", "encoder_char_hidden_size"
    readers = [
        ("--encoder-type convolutional", cfg.encoder_type == "convolutional", convolutional),
        ("--encoder-type hierarchical", cfg.encoder_type == "hierarchical", hierarchical),
        ("attention to two levels", two_levels(cfg), ("attention_via_dim",)),
        ("a GRU", in_histories or any(issubclass(cell, GRUCell) for cell in cells), ("gate_bias",)),
        ("--init normal", cfg.init == "normal", ("init_std",)),
    ]
    return [
        f"{flag(option)} {getattr(cfg, option)} changes nothing without {reader}"
        for reader, there, options in readers
        for option in options
        if not there and getattr(cfg, option) not in usual(option)
    ]


def usual(option: str) -> List[Any]:
    """The values that architectures give to an option."""
    return [row.delta[option] for row in VARIANTS.values() if option in row.delta]


def check(cfg) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigurationError: names the option and says what to do.
    """
    for field in dataclasses.fields(AttentionRNNConfig):
        value = getattr(cfg, field.name)
        if value is not None and not is_of_type(field.name, value):
            raise ConfigurationError(f"{flag(field.name)} cannot be {value!r}{choices(field.name)}")
    for option, bound in described("bound").items():
        if getattr(cfg, option) is not None and not bound.holds(getattr(cfg, option)):
            raise ConfigurationError(f"{flag(option)} must {bound.text}, not {getattr(cfg, option)}")
    part_arguments(cfg)
    filters(cfg)
    options = _with_implied(cfg)
    for refusal in REFUSALS:
        if refusal.found(options):
            raise ConfigurationError(refusal.reason.format(**vars(options)))


def _with_implied(cfg) -> SimpleNamespace:
    """The options, choices as strings, and what follows from them."""
    given = {option.name: getattr(cfg, option.name) for option in dataclasses.fields(AttentionRNNConfig)}
    read = {name: str(value) if isinstance(value, enum.Enum) else value for name, value in given.items()}
    directions, found, hidden = bidirectional_layers(cfg), source_widths(cfg), cfg.decoder_hidden_size

    def first(*options: str) -> str:
        """The first of some options that is set."""
        return next((flag(option) for option in options if read[option] not in (False, "none")), "")

    of_layers = "context_to_layers", "readout_all_layers", "initial_state_per_layer"
    scaling_decoder = "--layer-norm" if read["layer_norm"] == "all" else first("context_gate")
    scaling = {option: first("layer_norm") for option in cell_options(cfg)} | {"decoder_cell": scaling_decoder}
    controls = (option for option in scaling if issubclass(CELLS[read[option]], DoubledGRUCell))
    doubled = next((option for option in controls if scaling[option]), "")
    score = SCORES[read["attention_score"]]
    units = {
        "--encoder-type convolutional is segments": read["encoder_type"] == "convolutional",
        "--attention-via-words-alone is words": cfg.attention_via_words_alone,
    }
    return SimpleNamespace(
        **read,
        tied=tied(cfg),
        idle=idle(cfg),
        least_depth=least_depth(cfg),
        inside=layers_inside(cfg),
        two_levels=two_levels(cfg),
        doubled=doubled and f"{flag(doubled)} {read[doubled]}",
        scaling=scaling.get(doubled),
        scaling_decoder=scaling_decoder,
        adaptive_decoder=CELLS[read["decoder_cell"]] is AdaptiveGRUCell,
        one_layer="" if cfg.decoder_layers > 1 else first(*of_layers),
        reader=first("decoder_condition", "bridge_target", "context_gate"),
        one_direction=directions + 1,  # the lowest such layer, if there is one
        above=directions + 2,
        widths=found,
        unequal=found.lower if found.lower != hidden else found.top,
        unprojected=not (score.projects_query or score.projects_keys),
        headed="attention_heads" in score.flags.values(),
        package=NORMALIZERS[read["attention_normalizer"]].package,
        same_units=WINDOWS[read["attention_window"]].same_units,
        beside_state=CELLS[read["decoder_cell"]].vectors > 1,
        one_state=" or ".join(name for name, cell in CELLS.items() if cell.vectors == 1),
        unequal_units=next((text for text, there in units.items() if there), ""),
    )


def check_task(name: Any) -> None:
    """Refuse a task, as the command line names it, that no model here goes with.

    Raises:
        ConfigurationError: it trains an encoder and a decoder of each language.
    """
    if isinstance(name, str) and issubclass(TASK_REGISTRY.get(name, object), MultilingualTranslationTask):
        raise ConfigurationError(
            f"--task {name} trains an encoder and a decoder of each language, and models here have one of each for all "
            "languages: use --task translation_multi_simple_epoch --encoder-langtok tgt"
        )


def check_tpu(cfg) -> None:
    """Refuse --bf16, of which fairseq makes --tpu, and --tpu itself, where there is nothing to reach one by.

    Raises:
        ConfigurationError: with what else there is.
    """
    if getattr(cfg, "tpu", False) and importlib.util.find_spec("torch_xla") is None:
        options = ("--memory-efficient-bf16", "--bf16", "--tpu")
        asked = next(option for option in options if getattr(cfg, option[2:].replace("-", "_"), False))
        raise ConfigurationError(
            f"{asked} asks fairseq for a TPU, and torch_xla is not installed: use --compute-dtype bfloat16, or on a "
            "GPU --fp16 or --amp"
        )


def check_data(cfg, task) -> None:
    """Refuse options that do not fit what a task reads, by its dictionaries: those of characters know the space.

    Raises:
        ConfigurationError: with the reason.
    """
    source, target = task.source_dictionary, task.target_dictionary
    of_characters = [hasattr(dictionary, "space") for dictionary in (source, target)]
    window = str(cfg.attention_window)
    if cfg.share_all_embeddings and source != target:
        raise ConfigurationError(
            "--share-all-embeddings needs one dictionary for both languages: "
            "run fairseq-preprocess with --joined-dictionary"
        )
    of_task = getattr(task, "cfg", None) or getattr(task, "args", None)  # the latter of those without a dataclass
    if str(getattr(of_task, "left_pad_target", False)) == "True":
        raise ConfigurationError(
            "--left-pad-target puts padding before the words of a translation, and a recurrent decoder steps "
            "through it as through words: leave it out"
        )
    if cfg.encoder_type == "hierarchical" and not of_characters[0]:
        raise ConfigurationError(
            "--encoder-type hierarchical (--arch ava) reads characters and needs to know the space among them: use "
            "--task char_translation without --source-subwords, for fairseq-preprocess too"
        )
    if WINDOWS[window].same_units and of_characters == [False, True]:
        raise ConfigurationError(
            f"--attention-window {window} looks near source position i at target position i, and with "
            "--source-subwords a subword has several characters: use --attention-window predictive, or none"
        )
    if cfg.copying and of_characters[0] != of_characters[1]:
        raise ConfigurationError(
            "--copying writes a source symbol into the target, and with --source-subwords a subword is none of its "
            "characters: leave it out"
        )


def check_compiler(device: torch.device) -> None:
    """Refuse --compile where torch.compile cannot work.

    Raises:
        ConfigurationError: there is no compiler for the device.
    """
    if not hasattr(torch.compiler, "is_compiling"):
        raise ConfigurationError(f"--compile needs torch 2.3 or later, not {torch.__version__}")
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise ConfigurationError("--compile needs triton for CUDA: pip install triton, or leave --compile out")
    if device.type == "cpu" and not any(map(shutil.which, filter(None, [os.environ.get("CXX"), "g++", "clang++"]))):
        raise ConfigurationError(
            "--compile needs a C++ compiler on a CPU, and neither $CXX nor g++ nor clang++ is here: install one, or "
            "leave --compile out"
        )
