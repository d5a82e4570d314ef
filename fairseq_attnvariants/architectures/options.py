"""The options of every model here: each stands once, with its type, bound, help and what ``rnnsearch`` has.

An option left at None is filled from the architecture's row in :mod:`.variants`, so that ``--arch NAME`` and
hydra's ``model._name=NAME`` give the same model.  Architectures, refusals, ``config/train.yaml`` and the pages read
what stands here.
"""

import contextlib
import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Dict, List, Optional, Tuple, Type, get_args, get_type_hints

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II, OmegaConf, open_dict

from ..nn import hard_attention  # noqa: F401 - enters its readouts and its score
from ..nn.attention import NORMALIZERS, SCORES, MultiHeadAttention, Normalizer
from ..nn.cells import CELLS
from ..nn.histories import HISTORIES, ConvolutionHistory, CoverageGRUHistory
from ..nn.readout import READOUTS
from ..nn.windows import WINDOWS, Window
from ..registry import FINITE, Bound, Option, Part, Registry, above, at_least, within

ENCODER = ChoiceEnum(["bidirectional", "hierarchical", "convolutional"])
TRANSITION = ChoiceEnum(["simple", "conditional", "late", "stacked"])
CONTEXT_GATE = ChoiceEnum(["none", "source", "target", "both"])
INITIAL_STATE = ChoiceEnum(["first", "linear", "mean"])
FEATURES = ChoiceEnum(["attended", "prepended"])
INIT = ChoiceEnum(["normal", "uniform"])
LAYER_NORM = ChoiceEnum(["none", "encoder", "all"])
BRIDGE_DIRECT = ChoiceEnum(["none", "hard", "soft"])
COMPUTE_DTYPE = ChoiceEnum(["float32", "bfloat16", "auto"])
SEARCH_DTYPE = ChoiceEnum(["float32", "bfloat16", "auto"])

RESIDUALS = Bound(
    "be 0 (none), or the layer from which on there are some, 2 or above (the lowest reads words, and its input is no "
    "state)",
    lambda value: value == 0 or value >= 2,
)


def hidden_width(cfg) -> int:
    """The decoder's hidden width."""
    return cfg.decoder_hidden_size


def annotation_width(cfg) -> int:
    """The width of ``[→s; ←s]``."""
    return 2 * cfg.encoder_hidden_size


def least_depth(cfg) -> int:
    """The cells of a decoder step that is not deep."""
    return 2 if cfg.decoder_transition == "conditional" else 1


def maxout_width(cfg) -> int:
    """Half the decoder's hidden width, or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if tied(cfg) else max(1, cfg.decoder_hidden_size // 2)


def relu_width(cfg) -> int:
    """512 (Zhao and Zhang 2018), or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if tied(cfg) else 512


def linear_width(cfg) -> int:
    """The decoder's hidden width, or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if tied(cfg) else cfg.decoder_hidden_size


def state_and_annotation_width(cfg) -> int:
    """The width of a state and an annotation (Wu et al. 2018), or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if tied(cfg) else cfg.decoder_hidden_size + 2 * cfg.encoder_hidden_size


def embedding_width(cfg) -> int:
    """The target embedding's width."""
    return cfg.decoder_embed_dim


def tied(cfg) -> bool:
    """Whether the vocabulary layer is the target embedding."""
    # on the command line, an option that was not given is not there at all
    return any(getattr(cfg, name, False) for name in ("share_decoder_input_output_embed", "share_all_embeddings"))


def option(
    help: str,
    default=None,
    rnnsearch=None,
    bound: Optional[Bound] = None,
    names: Optional[Registry] = None,
    alias: Optional[str] = None,
    sets: Optional[Tuple[Type[Part], str]] = None,
) -> Any:
    """A dataclass field.

    Args:
        help: for the command line and the pages.
        default: where no architecture sets it.
        rnnsearch: what the architecture ``rnnsearch`` has: a value, or a function of the configuration.
        bound: what a value has to be.
        names: the table whose names it takes.
        alias: another flag for it.
        sets: the component, and the option of its constructor, that it sets.
    """
    said = {"help": help, "rnnsearch": rnnsearch, "bound": bound, "names": names, "argparse_alias": alias}
    return field(default=default, metadata={**said, "sets": sets})


size = partial(option, bound=at_least(1))
rate = partial(option, rnnsearch=0.0, bound=within(0, 1))
switch = partial(option, rnnsearch=False)


def option_of(component: Type[Part], name: str) -> Any:
    """A dataclass field that sets an option of a component, with the default, bound and help of that."""
    declared = component.own_options()[name]
    return option(declared.help, rnnsearch=declared.default, bound=declared.bound, sets=(component, name))


@dataclass
class AttentionRNNConfig(FairseqDataclass):
    """Sizes, parts and regularisation of an attentional recurrent encoder-decoder.

    Flags are named as the stock ``lstm`` names them.
    """

    def _get_help(self, attribute_name: str) -> Any:
        """What stock fairseq shows of an option: the help, and all names, or options of parts, that it takes."""
        names = self._get_meta(attribute_name, "names")
        text = super()._get_help(attribute_name)
        if attribute_name == "part_args":
            return f"{text}; there are {'; '.join(part_options()) or 'none here'}"
        return text if names is None else f"{text}; there are {', '.join(names)}"

    # sizes
    encoder_embed_dim: Optional[int] = size("width m of the source embeddings", rnnsearch=620)
    encoder_hidden_size: Optional[int] = size("width n of each direction of the encoder", rnnsearch=1000)
    encoder_layers: Optional[int] = size("number of encoder layers; of words, in the hierarchical encoder", rnnsearch=1)
    decoder_embed_dim: Optional[int] = size("width m of the target embeddings", rnnsearch=620)
    decoder_hidden_size: Optional[int] = size("width n of the decoder's state", rnnsearch=1000)
    decoder_layers: Optional[int] = size(
        "number of decoder layers; attention belongs to the first, or to all with --decoder-transition late or stacked",
        rnnsearch=1,
    )
    decoder_out_embed_dim: Optional[int] = size(
        "width of the readout, which the vocabulary layer reads (default: the paper's rule, from the other widths)",
        rnnsearch=maxout_width,
    )
    attention_dim: Optional[int] = size(
        "width at which attention's score compares, 'dot' and 'bilinear' excepted (default: the paper's rule, from the "
        "other widths)",
        rnnsearch=hidden_width,
    )

    encoder_char_hidden_size: Optional[int] = size("width of the hierarchical encoder's character RNN", rnnsearch=512)
    attention_via_dim: Optional[int] = size(
        "width of the lower level's score in attention via attention", rnnsearch=128
    )

    # parts
    encoder_type: Optional[ENCODER] = option(  # type: ignore[valid-type]
        "'bidirectional' over tokens; 'hierarchical': over characters, and over words above them (Zhao and Zhang 2018; "
        "needs --task char_translation); 'convolutional': over segments of characters, the maxima of convolutions "
        "(char2char)",
        rnnsearch="bidirectional",
    )
    encoder_filters: Optional[str] = option(
        "how many filters of width 1, 2, 3, ... the convolutional encoder has, joined by '-'",
        rnnsearch="200-200-250-250-300-300-300-300",
    )
    encoder_pooling: Optional[int] = size("characters in a segment of the convolutional encoder", rnnsearch=5)
    encoder_highway_layers: Optional[int] = option(
        "highway layers of the convolutional encoder, above its segments", rnnsearch=4, bound=at_least(0, "none")
    )
    encoder_char_cell: Optional[str] = option(
        "cell of the hierarchical encoder's character RNN", rnnsearch="lstm", names=CELLS
    )
    attention_via: Optional[bool] = switch(
        "attention via attention: attend to words, or to the upper encoder layers, and guided by that to characters, "
        "or to the lowest layer"
    )
    attention_via_unguided: Optional[bool] = switch(
        "ablation: leave the upper level's context out of the lower one's query, as the authors' code does"
    )
    attention_via_words_alone: Optional[bool] = switch(
        "ablation: attend to words only, and not by way of them to characters (with --encoder-type hierarchical)"
    )
    encoder_cell: Optional[str] = option(
        "cell of the encoder; 'adaptive_gru' weighs its input against its history",
        rnnsearch="gru",
        names=CELLS,
    )
    decoder_cell: Optional[str] = option("cell of the decoder, see the encoder's", rnnsearch="gru", names=CELLS)
    decoder_transition: Optional[TRANSITION] = option(  # type: ignore[valid-type]
        "order of a decoder step: 'simple' attends from the previous state and then steps one cell (rnnsearch), "
        "'conditional' steps a cell, attends from its state and steps a second cell (dl4mt), 'late' steps all layers "
        "and then attends from the highest one's state (ava), 'stacked' attends from the highest layer's previous "
        "state and then steps all layers (char2char; see --context-to-layers)",
        rnnsearch="simple",
    )
    residuals: Optional[int] = option(
        "from this layer on, 2 or above, a layer's input is added to its output, in the encoder and the decoder; 0 for "
        "none",
        rnnsearch=0,
        bound=RESIDUALS,
    )
    encoder_bidirectional_layers: Optional[int] = option(
        "how many of the encoder's layers, the lowest, have both directions; 0 for all",
        rnnsearch=0,
        bound=at_least(0, "all"),
    )
    context_to_layers: Optional[bool] = switch("give the context to every decoder layer, not the first alone")
    encoder_transition_depth: Optional[int] = size(
        "cells that an encoder layer steps one after another for each token; the further ones read only the state",
        rnnsearch=1,
    )
    decoder_transition_depth: Optional[int] = option(
        "the same of the decoder's lowest layer, all cells counted: at least 2 with --decoder-transition conditional",
        rnnsearch=least_depth,
    )
    context_gate: Optional[CONTEXT_GATE] = option(  # type: ignore[valid-type]
        "a gate in the GRU that reads the context scales what it reads of the source ('source'), the word and its "
        "state ('target'), or the ones up and the others down ('both'); with --context-to-layers every layer's that "
        "steps with attention has one, and those above (--decoder-transition simple, conditional) read it ungated",
        rnnsearch="none",
    )
    initial_state: Optional[INITIAL_STATE] = option(  # type: ignore[valid-type]
        "the decoder starts from the backward state at the first word (where the top layer has none, from the forward "
        "state at the last), through tanh ('first') or not ('linear'), or from the mean annotation ('mean')",
        rnnsearch="first",
    )
    readout: Optional[str] = option(
        "readout: deep output with maxout, the sum of state, word and context ('linear') or its tanh, or two layers of "
        "relu",
        rnnsearch="maxout",
        names=READOUTS,
    )
    adaptive_gru_released: Optional[bool] = switch(
        "ablation: the decoder's second adaptive GRU as in its authors' released code, where 1-g scales the whole "
        "candidate and biases are not weighed"
    )
    adaptive_output: Optional[bool] = switch("weigh the state, the word and the context in the readout's sum")
    adaptive_output_swapped: Optional[bool] = switch(
        "ablation: in these weights, swap the two sets of projections as the authors' code does"
    )
    bridge_source: Optional[bool] = switch("annotations carry the source embeddings (source-side bridging)")
    bridge_target: Optional[bool] = switch(
        "the cell that reads the context reads the embedding of the most attended source word, too (target-side "
        "bridging)"
    )
    bridge_direct: Optional[BRIDGE_DIRECT] = option(  # type: ignore[valid-type]
        "map source embeddings towards the target's, for --criterion label_smoothed_cross_entropy_with_costs: of "
        "the most attended word ('hard'), of the mean weighted by attention ('soft'), or 'none'",
        rnnsearch="none",
    )
    bridge_direct_alone: Optional[bool] = switch("allow --bridge-direct without --bridge-source")
    copying: Optional[bool] = switch(  # a configuration's own `copy` is a method
        "a target word is generated, or it is the source word that is attended to (See et al. 2017): the same symbol, "
        "or <unk> where the target dictionary lacks it",
        alias="--copy",
    )
    attention_reads_target: Optional[bool] = switch(
        "attention's query, of two levels the upper one's, also reads the previous target word (char2char)"
    )
    readout_all_layers: Optional[bool] = switch(
        "the readout reads the states of all decoder layers, not the highest one's alone; needs layers that step with "
        "attention, as in --decoder-transition late and stacked (char2char)"
    )
    initial_state_per_layer: Optional[bool] = switch(
        "every decoder layer starts from an affine map of its own, not all from the same state (char2char)"
    )
    input_feed: Optional[bool] = switch("feed the previous context to the decoder's first cell (InputFeed)")
    attention_score: Optional[str] = option(
        "how the state q and an annotation s are compared: v·tanh(W q + U s + b) ('additive'), q·s ('dot', for equal "
        "widths), (W q)·(U s) / √width ('scaled'), q·(W s) ('bilinear'), or as 'scaled' by --attention-heads, each "
        "with its part of --attention-dim and values of its own ('multihead')",
        rnnsearch="additive",
        names=SCORES,
    )
    attention_heads: Optional[int] = option_of(MultiHeadAttention, "heads")
    attention_normalizer: Optional[str] = option(
        "how weights are made of the score's energies: 'softmax', or with exact zeros 'sparsemax' or 'entmax' "
        "(α = 1.5), which need the package entmax",
        rnnsearch="softmax",
        names=NORMALIZERS,
    )
    attention_temperature: Optional[float] = option_of(Normalizer, "temperature")
    attention_window: Optional[str] = option(
        "look at the whole sentence ('none'), only near position i at step i ('monotone', Luong's local-m), or near a "
        "position that is predicted from the state, and less the farther from it ('predictive', local-p)",
        rnnsearch="none",
        names=WINDOWS,
    )
    attention_window_width: Optional[int] = option_of(Window, "width")
    attention_history: Optional[str] = option(
        "what attention knows of earlier steps; several are joined by '+': 'context' (RecAtt), "
        "'state' (RNNAtt), 'distance' (HybridAtt1), 'convolution' (HybridAtt2), 'coverage' (the sum of all earlier "
        "weights), 'fertility' (that sum over a learned fertility), 'coverage_gru' (a GRU that reads them), or 'none'",
        rnnsearch="none",
        names=HISTORIES,
    )
    attention_filters: Optional[int] = option_of(ConvolutionHistory, "filters")
    attention_filter_width: Optional[int] = option_of(ConvolutionHistory, "width")
    attention_coverage_dim: Optional[int] = option_of(CoverageGRUHistory, "width")
    part_args: Any = option(
        "options of parts, as JSON: by the name of a part, by the name of an option of its own, such as "
        '\'{"decay": {"rate": 0.9}}\''
    )
    decoder_condition: Optional[bool] = switch("add CondDec's condition to the decoder's cell")

    features: Optional[FEATURES] = option(  # type: ignore[valid-type]
        "features of a source (--task string_transduction --features-column) are a set of embeddings, to which the "
        "decoder attends from its previous state and whose context its first cell reads ('attended'), or symbols "
        "before those of the source ('prepended')",
        rnnsearch="attended",
    )

    # regularisation
    dropout: Optional[float] = option("dropout at every place that is not given separately below", bound=within(0, 1))
    encoder_dropout_in: Optional[float] = rate("dropout after the source embeddings")
    encoder_dropout_words: Optional[float] = rate(
        "share of the source words whose whole embedding is dropped in training; not set by --dropout"
    )
    encoder_dropout_out: Optional[float] = rate("dropout after the annotations, and between encoder layers")
    encoder_dropout_hidden: Optional[float] = rate(
        "dropout within the encoder's recurrences, of the previous state with one mask a sentence; not set by --dropout"
    )
    decoder_dropout_in: Optional[float] = rate("dropout after the target embeddings")
    decoder_dropout_words: Optional[float] = rate(
        "share of the previous target words whose whole embedding is dropped in training; not set by --dropout"
    )
    decoder_dropout_out: Optional[float] = rate("dropout after the readout, and between decoder layers", rnnsearch=0.5)
    decoder_dropout_hidden: Optional[float] = rate("the same as the encoder's, within the decoder's recurrences")

    layer_norm: Optional[LAYER_NORM] = option(  # type: ignore[valid-type]
        "layer normalisation of nothing ('none'), of the cells of the 'encoder', or of 'all': the decoder's cells, its "
        "initial state, attention's projected query and keys, and the readout's three maps, too",
        rnnsearch="none",
    )
    gate_bias: Optional[float] = option(
        "initial bias of the reset and the update gate of every GRU; 1 lets states last longer at the start",
        rnnsearch=0.0,
        bound=FINITE,
    )
    init: Optional[INIT] = option(  # type: ignore[valid-type]
        "initial values of matrices that are not orthogonal: 'normal', with --init-std, or 'uniform' between "
        "±√(6 / (in + out)), embeddings between ±0.01",
        rnnsearch="normal",
    )
    init_std: Optional[float] = option(
        "standard deviation of the initial values of --init normal; the papers' 0.01 suits their widths, smaller "
        "models learn sooner from 0.05",
        rnnsearch=0.01,
        bound=above(0),
    )

    # embeddings
    encoder_embed_path: Optional[str] = option(
        "file of pretrained source embeddings: lines of a word, as the dictionary has it, and its numbers (word2vec, "
        "fastText, GloVe)"
    )
    decoder_embed_path: Optional[str] = option("file of pretrained target embeddings, likewise")
    encoder_freeze_embed: bool = option("do not train the source embeddings", False)
    decoder_freeze_embed: bool = option("do not train the target embeddings", False)
    share_decoder_input_output_embed: Optional[bool] = switch(
        "tie the vocabulary layer to the target embeddings; the readout takes their width"
    )
    share_all_embeddings: Optional[bool] = switch(
        "tie the source and target embeddings and the vocabulary layer (needs a joined dictionary)"
    )

    warm_start: Optional[str] = option(
        "start from the parameters that are shared with this checkpoint, which may be of another architecture; "
        "resuming goes on from the own checkpoint all the same"
    )
    compute_dtype: COMPUTE_DTYPE = option(  # type: ignore[valid-type]
        "number type of the matrix products in training; with 'bfloat16' parameters, states and softmax stay float32; "
        "'auto' times products of the model's sizes at the start and takes bfloat16 if it is at least 1.1 times as "
        "fast, but on a GPU float32, and a training that goes on keeps it",
        "float32",
    )
    search_dtype: SEARCH_DTYPE = option(  # type: ignore[valid-type]
        "number type of the decoder's matrix products in search, for --model-overrides: 'float32', 'bfloat16' (on CUDA "
        "TF32), or bfloat16 where it is at least 1.1 times as fast ('auto')",
        "float32",
    )
    coverage_penalty: float = option(
        "strength of the coverage penalty in search, for --model-overrides: hypotheses that leave source tokens "
        "unattended lose (Wu et al. 2016); 0.2 is usual there, tune it together with --lenpen",
        0.0,
        bound=at_least(0, "off"),
    )
    recompute_steps: int = option(
        "keep, for the backward pass, the decoder's states of every so many steps only, and compute what is between "
        "them again: less memory for long texts, and more time; 0 keeps everything",
        0,
        bound=at_least(0, "off"),
    )
    compile: bool = option(
        "let torch.compile make fewer and larger kernels of a decoder step in training; needs torch 2.3 and a compiler",
        False,
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


def flag(option: str) -> str:
    """An option as it is given on the command line."""
    return "--" + option.replace("_", "-")


def described(key: str) -> Dict[str, Any]:
    """What is said of the options under ``rnnsearch``, ``bound`` or ``names``, by option, where something is."""
    said = {one.name: one.metadata.get(key) for one in dataclasses.fields(AttentionRNNConfig)}
    return {name: value for name, value in said.items() if value is not None}


def flags_of(component: Type[Part]) -> Dict[str, str]:
    """The options of the model that set options of a component, by the names of the latter."""
    own = component.own_options()
    setting = {
        name: option
        for option, (owner, name) in described("sets").items()
        if issubclass(component, owner) and name in own
    }
    return {**setting, **component.flags}


def custom_options(component: Type[Part]) -> Dict[str, Option]:
    """The options of a component that no option of the model sets: ``--part-args`` does."""
    flags = flags_of(component)
    return {name: option for name, option in component.own_options().items() if name not in flags}


def mistaken(name: str, value: Any) -> str:
    """The rest of a sentence that says what an option can be; nothing if it can be ``value``."""
    hint = get_type_hints(AttentionRNNConfig)[name]
    [kind] = {*(get_args(hint) or (hint,))} - {type(None)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = [str(choice.value) for choice in kind]
        return "" if str(value) in names else f": it is one of {', '.join(names)}"
    fits = kind is Any or type(value) in ((int, float) if kind is float else (kind,))
    return "" if fits else f": it is of {kind.__name__}"


def part_options() -> List[str]:
    """The options of all parts' own, each as ``part: option (default): help``, for argparse."""
    lines = [
        f"{name}: {own} ({option.default}): {option.help}".replace("%", "%%")
        for table in described("names").values()
        for name, part in table.items()
        for own, option in custom_options(part).items()
    ]
    return [*dict.fromkeys(lines)]  # several options share the table of cells


def complete(cfg) -> None:
    """Add the options that the version of this package that saved ``cfg`` did not have yet, at their defaults."""
    with open_dict(cfg) if OmegaConf.is_config(cfg) else contextlib.nullcontext():
        for option in dataclasses.fields(AttentionRNNConfig):
            if not hasattr(cfg, option.name):
                setattr(cfg, option.name, option.default)
