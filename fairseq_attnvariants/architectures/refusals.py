"""Refuses options that cannot work, alone or together.  Each sentence names the options, the reason and a remedy.

Each function here yields the sentences about one subject.  The constructor of a component, in :mod:`..nn`, refuses
values that concern this component alone.
"""

import dataclasses
import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import torch
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask

from ..nn.attention import NORMALIZERS
from ..nn.cells import CELLS, AdaptiveGRUCell, GRUCell
from ..nn.hard_attention import HardAttention, HardMonotone
from ..nn.layers import FUSED
from ..nn.readout import READOUTS
from ..nn.windows import WINDOWS
from ..registry import ConfigurationError
from .derived import bidirectional_layers, cell_options, chosen_parts, filters, histories, layers_inside, two_levels
from .options import AttentionRNNConfig, described, flag, flags_of, least_depth, mistaken, state_width, tied
from .part_args import part_arguments
from .variants import VARIANTS


def first_set(o: AttentionRNNConfig, *options: str) -> str:
    """The flag of the first of these options that is set; empty if none is."""
    return next((flag(option) for option in options if getattr(o, option) and str(getattr(o, option)) != "none"), "")


def idle(o: AttentionRNNConfig) -> Iterator[str]:
    """Options of components that are not chosen."""
    read = {option for parts in chosen_parts(o).values() for part in parts for option in flags_of(part).values()}
    for choice, table in described("names").items():
        if choice == "encoder_char_cell" and o.encoder_type != "hierarchical":
            continue
        needing: dict[str, list[str]] = {}
        for name, part in table.items():
            for option in flags_of(part).values():
                needing.setdefault(option, []).append(name)
        for option, names in needing.items():
            value = getattr(o, option)
            if option not in read and value not in usual(option):
                needed = f"{flag(choice)} {' or '.join(names)}"
                yield f"{flag(option)} {value} needs {needed}: add it, or leave {flag(option)} out"


def has_only_pytorchs_layers(o: AttentionRNNConfig) -> bool:
    """Whether all layers of the encoder are PyTorch's."""
    plain = o.layer_norm == "none" and o.encoder_transition_depth == 1 and o.encoder_reads == "both"
    return plain and CELLS[o.encoder_cell] in FUSED


def readers(o: AttentionRNNConfig, option: str) -> list[str]:
    """The options that name a cell which ``option`` changes."""
    return [one for one in cell_options(o) if option in flags_of(CELLS[getattr(o, one)]).values()]


def embeddings(o: AttentionRNNConfig) -> Iterator[str]:
    """Embeddings that are shared or tied."""
    if tied(o) and o.readout == "state" and state_width(o) != o.decoder_embed_dim:
        yield (
            "tied embeddings are as wide as what the vocabulary layer reads, with --readout state the decoder's state: "
            f"set --decoder-embed-dim ({o.decoder_embed_dim}) to {state_width(o)}"
        )
    if tied(o) and o.decoder_out_embed_dim != o.decoder_embed_dim:
        yield (
            f"tied embeddings need --decoder-out-embed-dim ({o.decoder_out_embed_dim}) equal to --decoder-embed-dim "
            f"({o.decoder_embed_dim}); leave it out and it follows"
        )
    if o.share_all_embeddings and o.encoder_embed_dim != o.decoder_embed_dim:
        yield (
            f"--share-all-embeddings needs --encoder-embed-dim ({o.encoder_embed_dim}) equal to --decoder-embed-dim "
            f"({o.decoder_embed_dim}): give both the same number"
        )
    files = o.encoder_embed_path or None, o.decoder_embed_path or None
    if o.share_all_embeddings and (files[0] != files[1] or o.encoder_freeze_embed != o.decoder_freeze_embed):
        yield (
            "--share-all-embeddings has one matrix: give both sides the same --encoder-embed-path and "
            "--decoder-embed-path, and freeze both or neither"
        )


def units(o: AttentionRNNConfig) -> Iterator[str]:
    """Options for which the decoder has to attend to the source's tokens one by one."""
    attended = "--attention-via-words-alone is words" if o.attention_via_words_alone else ""
    if o.encoder_type == "convolutional":
        attended = "--encoder-type convolutional is segments"
    if attended and WINDOWS[o.attention_window].same_units:
        yield (
            f"--attention-window {o.attention_window} looks near source position i at target position i, and the "
            f"source of {attended}: use --attention-window predictive, or none"
        )
    if o.copying and not NORMALIZERS[o.attention_normalizer].adds_up:
        yield (
            "--copying needs attention weights that add up to 1, and those of --attention-normalizer "
            f"{o.attention_normalizer} do not: leave one of them out"
        )
    if attended and o.copying:
        yield f"--copying writes the source symbol that is attended to, and the source of {attended}: leave it out"


def cells(o: AttentionRNNConfig) -> Iterator[str]:
    """Cells and their additions."""
    if o.decoder_transition_depth < least_depth(o):
        yield (
            f"--decoder-transition-depth must be at least {least_depth(o)} with --decoder-transition "
            f"{o.decoder_transition}, which has as many cells, not {o.decoder_transition_depth}"
        )
    one_state = " or ".join(name for name, cell in CELLS.items() if cell.vectors == 1)
    several = CELLS[o.decoder_cell].vectors > 1
    if several and o.decoder_condition:
        yield (
            "--decoder-condition adds to a GRU's state (Feng et al. 2016, section 5) and is not defined for "
            f"--decoder-cell {o.decoder_cell}; use --decoder-cell {one_state}"
        )
    if several and o.context_gate != "none":
        yield (
            "--context-gate scales what a GRU reads and keeps (Tu et al. 2017) and is not defined for --decoder-cell "
            f"{o.decoder_cell}, which has a memory next to its state; use --decoder-cell {one_state}"
        )
    for side in ("encoder", "decoder"):
        cell = getattr(o, f"{side}_cell")
        if getattr(o, f"{side}_dropout_hidden") and not CELLS[cell].recalls:
            yield (
                f"--{side}-dropout-hidden drops out what recurrent products read, and --{side}-cell {cell} has none: "
                "leave it out"
            )
    if o.layer_norm_joint and o.layer_norm == "none":
        yield "--layer-norm-joint needs --layer-norm: add it"
    if o.recurrent_bias and has_only_pytorchs_layers(o) and not issubclass(CELLS[o.decoder_cell], GRUCell):
        yield (
            "--recurrent-bias gives a GRU a second bias, and the encoder's has one anyway, as PyTorch's kernels want "
            "it: leave it out"
        )
    scaling = "--layer-norm" if o.layer_norm == "all" else first_set(o, "context_gate")
    adaptive = CELLS[o.decoder_cell] is AdaptiveGRUCell and o.decoder_transition == "conditional"
    if o.adaptive_gru_released and not adaptive:
        yield (
            "--adaptive-gru-released changes the second cell of --decoder-transition conditional with --decoder-cell "
            "adaptive_gru: add both (--arch adaptive_gru has them), or leave it out"
        )
    if o.adaptive_gru_released and scaling:
        yield (
            f"--adaptive-gru-released leaves biases unweighed, which {scaling} makes part of what is weighed: leave "
            "one of them out"
        )


def levels(o: AttentionRNNConfig) -> Iterator[str]:
    """Attention to two levels (Zhao and Zhang 2018)."""
    hierarchical = o.encoder_type == "hierarchical"
    if hierarchical and not o.attention_via:
        yield (
            "--encoder-type hierarchical has annotations of words and of characters, and only --attention-via attends "
            "to both: add it"
        )
    if o.attention_via and not hierarchical and o.encoder_layers < 2:
        yield (
            "--attention-via needs two levels of annotations: --encoder-layers 2 (or more), or --encoder-type "
            "hierarchical"
        )
    if o.attention_via_words_alone and not (o.attention_via and hierarchical):
        yield (
            "--attention-via-words-alone leaves characters out of --attention-via with --encoder-type hierarchical: "
            "add both (--arch ava has them), or leave it out"
        )
    if o.attention_via_words_alone and o.attention_via_unguided:
        yield (
            "--attention-via-unguided changes attention to characters, of which --attention-via-words-alone has none: "
            "leave one of them out"
        )
    if o.attention_via_unguided and not o.attention_via:
        yield "--attention-via-unguided changes --attention-via, which is not given: add it"


def layers(o: AttentionRNNConfig) -> Iterator[str]:
    """Numbers of layers, their directions, residuals and inputs."""
    if o.encoder_bidirectional_layers > o.encoder_layers:
        yield (
            f"--encoder-bidirectional-layers {o.encoder_bidirectional_layers}: the model has --encoder-layers "
            f"{o.encoder_layers}; use 0 for all"
        )
    lowest = bidirectional_layers(o) + 1  # the lowest layer of one direction
    if lowest <= o.encoder_layers and 0 < o.residuals <= lowest:
        yield (
            f"--residuals {o.residuals} adds inputs to outputs from that layer on, and with "
            f"--encoder-bidirectional-layers {o.encoder_bidirectional_layers} the input of encoder layer {lowest} is "
            f"twice as wide as its output; use {lowest + 1} or above"
        )
    if o.residuals > max(o.encoder_layers, o.decoder_layers):
        yield (
            f"--residuals {o.residuals} begins above the highest layer: the model has --encoder-layers "
            f"{o.encoder_layers} and --decoder-layers {o.decoder_layers}; use 0, or a lower layer"
        )
    if o.encoder_reads != "both" and bidirectional_layers(o) < 2:
        yield (
            f"--encoder-reads {o.encoder_reads} needs a bidirectional layer above another one, and with "
            f"--encoder-layers {o.encoder_layers} and --encoder-bidirectional-layers {o.encoder_bidirectional_layers} "
            "there is none: leave it out"
        )
    upper = first_set(o, "context_to_layers", "readout_all_layers", "initial_state_per_layer")
    if upper and o.decoder_layers == 1:
        yield (
            f"{upper} needs decoder layers above the first, and --decoder-layers 1 has none: use 2 "
            "or more, or leave it out"
        )
    if o.readout_all_layers and layers_inside(o) < o.decoder_layers:
        late = " --context-to-layers" if o.decoder_transition == "late" else ""
        yield (
            "--readout-all-layers reads layers that step with attention, and with --decoder-transition "
            f"{o.decoder_transition}{late} only the lowest one does; use stacked, or late without --context-to-layers"
        )
    if o.initial_state_per_layer and str(o.initial_state) == "zero":
        yield (
            "--initial-state-per-layer gives every layer a map to start from, and --initial-state zero has none: leave "
            "one of them out"
        )
    reader = first_set(o, "decoder_condition", "bridge_target", "context_gate")
    if reader and o.decoder_transition == "late":
        yield (
            f"{reader} changes the cell that reads the context, and with --decoder-transition late there is none after "
            "attention; use simple or conditional"
        )
    if o.decoder_condition and o.decoder_transition == "stacked":
        yield (
            "--decoder-condition adds to the state of one cell, and with --decoder-transition stacked every layer has "
            "one; use simple or conditional"
        )


def bridges(o: AttentionRNNConfig) -> Iterator[str]:
    """Bridging (Kuang et al. 2018)."""
    if o.encoder_type != "bidirectional" and first_set(o, "bridge_source", "bridge_target", "bridge_direct"):
        yield (
            "--bridge-source, --bridge-target and --bridge-direct bridge the embeddings of words, and --encoder-type "
            f"{o.encoder_type} has embeddings of characters only; use --encoder-type bidirectional"
        )
    if o.bridge_direct != "none" and not (o.bridge_source or o.bridge_direct_alone):
        yield (
            "--bridge-direct without --bridge-source consistently worsened translation (Kuang et al. 2018, section "
            "2.3: a plain model's embeddings are too heterogeneous to be constrained); add --bridge-source, or "
            "--bridge-direct-alone to do it all the same"
        )
    if o.bridge_direct_alone and o.bridge_direct == "none":
        yield "--bridge-direct-alone allows --bridge-direct, which is not given: add it"


def readout(o: AttentionRNNConfig) -> Iterator[str]:
    """The inputs, biases and weights of the readout (Li et al. 2018)."""
    reads_context = o.context_to_layers or o.input_feed or o.copying
    if o.readout == "state" and o.decoder_transition == "late" and not reads_context:
        yield (
            "with --readout state and --decoder-transition late nothing reads the context, so that attention would "
            "learn nothing: add --context-to-layers, or use another readout"
        )
    if o.readout_biases and o.layer_norm != "all" and not o.adaptive_output:
        yield (
            "--readout-biases gives each of the readout's maps a bias, and without --layer-norm all or "
            "--adaptive-output the three add up to the one that is there: add one of these, or leave it out"
        )
    if o.adaptive_output_swapped and not o.adaptive_output:
        yield "--adaptive-output-swapped changes --adaptive-output, which is not given: add it"


def hard_attention(o: AttentionRNNConfig) -> Iterator[str]:
    """Readouts that make a word from one token, and components of attention that nothing reads with them."""
    hard, monotone = (issubclass(READOUTS[o.readout], kind) for kind in (HardAttention, HardMonotone))
    contextless = hard and o.decoder_transition == "late" and not o.input_feed and not o.context_to_layers
    segments = "--encoder-type convolutional" if o.encoder_type == "convolutional" else ""
    segments = "--attention-via-words-alone" if o.attention_via_words_alone else segments
    if hard and segments:
        yield (
            f"--readout {o.readout} makes a word from one token, and {segments} has no tokens: leave one of them out"
        )
    if o.attention_score == "level" and not (monotone and contextless):
        yield (
            "--attention-score level gives every position the same score, for --readout hard_monotone in a decoder "
            "that reads no context (--decoder-transition late without --input-feed): use another score"
        )
    if not contextless or o.copying:  # copying reads the context, too
        return
    if monotone:
        parts = first_set(o, "attention_history", "attention_window", "attention_via", "attention_reads_target")
        parts = parts or (f"--attention-score {o.attention_score}" if o.attention_score != "level" else "")
    else:
        parts = "--attention-score multihead" if o.attention_score == "multihead" else ""
        parts = parts or first_set(o, "attention_via_unguided")
    if parts:
        yield (
            f"--readout {o.readout} reads no context, and with --decoder-transition late nothing else does, so that "
            f"{parts} would learn nothing: leave it out (--arch {o.readout} sets suitable values), or add --input-feed"
        )


def kernels(o: AttentionRNNConfig) -> Iterator[str]:
    """Options on making and launching kernels."""
    if o.compile and o.cuda_graphs:
        yield (
            "--cuda-graphs replays recorded kernels, and --compile may make other kernels at any batch: "
            "leave one of them out"
        )


REFUSALS = (idle, embeddings, units, cells, levels, layers, bridges, readout, hard_attention, kernels)


def unread(o: AttentionRNNConfig, with_features: bool) -> list[str]:
    """A sentence for each option that the model does not read, if no architecture sets this value.

    ``with_features`` says whether sources have features.

    Such options are not refused, because checkpoints may have them.
    """
    gru = any(issubclass(CELLS[getattr(o, option)], GRUCell) for option in cell_options(o))
    gru = gru or not {"state", "coverage_gru"}.isdisjoint(histories(o))
    convolutional = "encoder_filters", "encoder_pooling", "encoder_highway_layers"
    hierarchical = "encoder_char_cell", "encoder_char_hidden_size"
    biased = any(one == "decoder_cell" or not has_only_pytorchs_layers(o) for one in readers(o, "recurrent_bias"))
    joint = any(one != "decoder_cell" or o.layer_norm == "all" for one in readers(o, "layer_norm_joint"))
    needed = [
        ("--encoder-type convolutional", o.encoder_type == "convolutional", convolutional),
        ("--encoder-type hierarchical", o.encoder_type == "hierarchical", hierarchical),
        ("attention to two levels", two_levels(o), ("attention_via_dim",)),
        ("a GRU", gru, ("gate_bias",)),
        ("a GRU that has no such bias anyway", biased, ("recurrent_bias",)),
        ("a GRU that --layer-norm normalises", joint, ("layer_norm_joint",)),
        ("--init normal", o.init == "normal", ("init_std",)),
        ("features of the sources", with_features, ("features",)),
    ]
    return [
        f"{flag(option)} {getattr(o, option)} changes nothing without {reader}"
        for reader, there, options in needed
        for option in options
        if not there and getattr(o, option) not in usual(option)
    ]


def usual(option: str) -> list[Any]:
    """The values that architectures give to an option."""
    return [row.delta[option] for row in VARIANTS.values() if option in row.delta]


def check(o: AttentionRNNConfig) -> None:
    """Refuse complete options that cannot work.

    Raises:
        ConfigurationError: options cannot work; the message names them and says what to do.
    """
    if str(o.search_dtype) == "int8":
        raise ConfigurationError("--search-dtype int8 was removed: use float32 or bfloat16")
    for field in dataclasses.fields(AttentionRNNConfig):
        value = getattr(o, field.name)
        if value is not None and (rest := mistaken(field.name, value)):
            raise ConfigurationError(f"{flag(field.name)} cannot be {value!r}{rest}")
    for option, bound in described("bound").items():
        if getattr(o, option) is not None:
            bound.check(getattr(o, option), flag(option))
    part_arguments(o)
    filters(o)
    for sentences in REFUSALS:
        for sentence in sentences(o):
            raise ConfigurationError(sentence)


def check_task(name: Any) -> None:
    """Refuse a task that does not fit the models here, by its name on the command line.

    Raises:
        ConfigurationError: the task trains an encoder and a decoder for each language.
    """
    if isinstance(name, str) and issubclass(TASK_REGISTRY.get(name, object), MultilingualTranslationTask):
        raise ConfigurationError(
            f"--task {name} trains an encoder and a decoder of each language, and models here have one of each for all "
            "languages: use --task translation_multi_simple_epoch --encoder-langtok tgt"
        )


def check_number_type(cfg) -> None:
    """Refuse --fp16 without a GPU, and --tpu without torch_xla; fairseq turns --bf16 into --tpu.

    Raises:
        ConfigurationError: the number type cannot be used; the message names alternatives.
    """
    if getattr(cfg, "tpu", False) and importlib.util.find_spec("torch_xla") is None:
        asked = next(name for name in ("memory_efficient_bf16", "bf16", "tpu") if getattr(cfg, name, False))
        raise ConfigurationError(
            f"{flag(asked)} asks fairseq for a TPU, and torch_xla is not installed: use --compute-dtype bfloat16, or "
            "on a GPU --fp16 or --amp"
        )
    works = any(getattr(cfg, option, False) for option in ("memory_efficient_fp16", "fp16_no_flatten_grads"))
    if getattr(cfg, "fp16", False) and not works and not torch.cuda.is_available():
        raise ConfigurationError("--fp16 needs a GPU: leave it out, or use --compute-dtype bfloat16")


def check_data(cfg, task) -> None:
    """Refuse options that do not fit a task and its dictionaries; only those of characters have ``space``.

    Raises:
        ConfigurationError: an option does not fit; the message has the reason.
    """
    source, target = task.source_dictionary, task.target_dictionary
    of_characters = [hasattr(dictionary, "space") for dictionary in (source, target)]
    if cfg.share_all_embeddings and source != target:
        raise ConfigurationError(
            "--share-all-embeddings needs one dictionary for both languages: "
            "run fairseq-preprocess with --joined-dictionary"
        )
    of_task = getattr(task, "cfg", None) or getattr(task, "args", None)  # tasks without a dataclass have args
    if str(getattr(of_task, "left_pad_target", False)) == "True":
        raise ConfigurationError(
            "--left-pad-target puts padding before the words of a translation, and a recurrent decoder "
            "reads it as words: leave it out"
        )
    if cfg.encoder_type == "hierarchical" and not of_characters[0]:
        raise ConfigurationError(
            "--encoder-type hierarchical (--arch ava) reads characters and needs the space among them: use "
            "--task char_translation without --source-subwords, for fairseq-preprocess too"
        )
    if WINDOWS[cfg.attention_window].same_units and of_characters == [False, True]:
        raise ConfigurationError(
            f"--attention-window {cfg.attention_window} looks near source position i at target position i, and with "
            "--source-subwords a subword has several characters: use --attention-window predictive, or none"
        )
    prepended = getattr(source, "first_feature", None) is not None and cfg.features == "prepended"
    if prepended and issubclass(READOUTS[cfg.readout], HardMonotone):
        raise ConfigurationError(
            f"--readout {cfg.readout} (--arch hard_monotone) reads a source from left to right, and with --features "
            "prepended it would begin with the features: use --features attended"
        )
    if cfg.copying and of_characters[0] != of_characters[1]:
        raise ConfigurationError(
            "--copying writes a source symbol into the target, and with --source-subwords the target has no "
            "subwords: leave it out"
        )


def check_compiler(device: torch.device) -> None:
    """Refuse --compile if torch.compile cannot work.

    Raises:
        ConfigurationError: torch is older than 2.3, or there is no compiler for the device.
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
