"""The options of all models, each with its type, bound and value in ``rnnsearch``.

The docstring of :class:`AttentionRNNConfig` has their help.  The docstring of a component has the help of its options.

An option left at None is filled from the architecture's row in :mod:`.variants`, so that ``--arch NAME`` and
hydra's ``model._name=NAME`` give the same model.  Architectures, refusals, ``config/train.yaml`` and the pages read
this module.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial, wraps
from types import NoneType
from typing import Any, Optional, get_args, get_type_hints

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II, OmegaConf, open_dict

from ..nn import hard_attention  # noqa: F401 - enters its readouts and its score
from ..nn.attention import NORMALIZERS, SCORES, MultiHeadAttention, Normalizer
from ..nn.cells import CELLS, GRUCell
from ..nn.histories import HISTORIES, ConvolutionHistory, CoverageGRUHistory
from ..nn.readout import READOUTS, Readout
from ..nn.windows import WINDOWS, Window
from ..registry import FINITE, Bound, Option, Part, Registry, above, at_least, described_arguments, within

ENCODER = ChoiceEnum(["bidirectional", "hierarchical", "convolutional"])
TRANSITION = ChoiceEnum(["simple", "conditional", "late", "stacked"])
CONTEXT_GATE = ChoiceEnum(["none", "source", "target", "both"])
ENCODER_READS = ChoiceEnum(["both", "own", "other"])
INITIAL_STATE = ChoiceEnum(["first", "linear", "mean", "zero"])
FEATURES = ChoiceEnum(["attended", "prepended"])
INIT = ChoiceEnum(["normal", "uniform"])
LAYER_NORM = ChoiceEnum(["none", "encoder", "all"])
BRIDGE_DIRECT = ChoiceEnum(["none", "hard", "soft"])
DTYPE = ChoiceEnum(["float32", "bfloat16", "auto"])

RESIDUALS = Bound(
    "be 0 (none), or the first layer with a residual, 2 or above (the lowest layer reads words, and its input is no "
    "state)",
    lambda value: value == 0 or value >= 2,
)


def hidden_width(cfg) -> int:
    """The decoder's hidden width."""
    return cfg.decoder_hidden_size


def annotation_width(cfg) -> int:
    """The width of ``[→s; ←s]``."""
    return 2 * cfg.encoder_hidden_size


def state_width(cfg) -> int:
    """The width of the state that the readout reads: of the highest decoder layer, or of all."""
    return cfg.decoder_hidden_size * (cfg.decoder_layers if cfg.readout_all_layers else 1)


def least_depth(cfg) -> int:
    """The number of cells in a decoder step that is not deep."""
    return 2 if cfg.decoder_transition == "conditional" else 1


def of_features(width: Callable[[Any], int]) -> Callable[[Any], int]:
    """Wrap a rule for the readout's width; with ``--readout state`` or tied embeddings, another width is needed."""

    @wraps(width)
    def chosen(cfg) -> int:
        if cfg.readout == "state":
            return state_width(cfg)
        return cfg.decoder_embed_dim if tied(cfg) else width(cfg)

    return chosen


@of_features
def half_width(cfg) -> int:
    """Half the decoder's hidden width; the embedding's width if embeddings are tied."""
    return max(1, cfg.decoder_hidden_size // 2)


linear_width = of_features(hidden_width)
"""The decoder's hidden width; the embedding's width if embeddings are tied."""


@of_features
def state_and_annotation_width(cfg) -> int:
    """The width of a state and an annotation (Wu et al. 2018); the embedding's width if embeddings are tied."""
    return cfg.decoder_hidden_size + 2 * cfg.encoder_hidden_size


@of_features
def embedding_width(cfg) -> int:
    """The target embedding's width."""
    return cfg.decoder_embed_dim


def tied(cfg) -> bool:
    """Whether the vocabulary layer is the target embedding."""
    # on the command line, an option that is not given has no attribute
    return any(getattr(cfg, name, False) for name in ("share_decoder_input_output_embed", "share_all_embeddings"))


def option(
    help: str = "",
    default=None,
    rnnsearch=None,
    bound: Bound | None = None,
    names: Registry | None = None,
    alias: str | None = None,
    sets: tuple[type[Part], str] | None = None,
) -> Any:
    """A dataclass field.

    Args:
        help: text for the command line and the pages, if the docstring lacks it.
        default: the value if no architecture sets the option.
        rnnsearch: the value in the architecture ``rnnsearch``, or a function of the configuration.
        bound: the condition on a value.
        names: the table of the allowed names.
        alias: another flag.
        sets: the component, and the option of its constructor, that this option sets.
    """
    said = dict(help=help, rnnsearch=rnnsearch, bound=bound, names=names, argparse_alias=alias, sets=sets)
    return field(default=default, metadata=said)


size = partial(option, bound=at_least(1))
rate = partial(option, rnnsearch=0.0, bound=within(0, 1))
switch = partial(option, rnnsearch=False)


def option_of(component: type[Part], name: str) -> Any:
    """A dataclass field that sets an option of a component, with its default, bound and help."""
    declared = component.own_options()[name]
    return option(declared.help, rnnsearch=declared.default, bound=declared.bound, sets=(component, name))


@dataclass
class Described(FairseqDataclass):
    """Options whose help is in the section ``Args:`` of the docstring."""

    def _get_help(self, attribute_name: str) -> Any:
        texts = (described_arguments(base.__doc__).get(attribute_name) for base in type(self).__mro__)
        return super()._get_help(attribute_name) or next(filter(None, texts), None)


@dataclass
class AttentionRNNConfig(Described):
    """Sizes, components and regularisation of an attentional recurrent encoder-decoder.

    Flags have the names of the stock ``lstm``.

    Args:
        encoder_embed_dim: width m of the source embeddings
        encoder_hidden_size: width n of each direction of the encoder
        encoder_layers: number of encoder layers; in the hierarchical encoder, of layers over words
        decoder_embed_dim: width m of the target embeddings
        decoder_hidden_size: width n of the decoder's state
        decoder_layers: number of decoder layers; attention belongs to the first, with --decoder-transition stacked to
            all, and with late to all unless --context-to-layers is given
        decoder_out_embed_dim: width of the readout, which the vocabulary layer reads (default: the paper's rule, from
            the other widths)
        attention_dim: width at which the attention score compares, except 'dot' and 'bilinear' (default: the paper's
            rule, from the other widths)
        encoder_char_hidden_size: width of the hierarchical encoder's character RNN
        attention_via_dim: width of the lower level's attention score in attention via attention
        encoder_type: 'bidirectional' reads tokens; 'hierarchical' reads characters, and words above them (Zhao and
            Zhang 2018; needs --task char_translation); 'convolutional' reads segments of characters, the maxima of
            convolutions (char2char)
        encoder_filters: numbers of filters of width 1, 2, 3, ... in the convolutional encoder, joined by '-'
        encoder_pooling: characters in a segment of the convolutional encoder
        encoder_highway_layers: highway layers of the convolutional encoder, above its segments
        encoder_char_cell: cell of the hierarchical encoder's character RNN
        attention_via: attention via attention: attend to words, and guided by them to characters; with other encoders,
            to the upper layers, and guided by them to the lowest layer
        attention_via_unguided: ablation: the lower level's query lacks the upper level's context, as in the authors'
            code
        attention_via_words_alone: ablation: attend to words only, not to their characters (with --encoder-type
            hierarchical)
        encoder_cell: cell of the encoder; 'adaptive_gru' weighs its input against its history
        decoder_cell: cell of the decoder; see --encoder-cell
        decoder_transition: order of a decoder step: 'simple' attends from the previous state, then steps one cell
            (rnnsearch); 'conditional' steps a cell, attends from its state, then steps a second cell (dl4mt); 'late'
            steps all layers, then attends from the highest one's state (ava), or with --context-to-layers steps the
            lowest one, attends from its state, then gives the context to the layers above (gnmt_v2); 'stacked' attends
            from the highest layer's previous state, then steps all layers (char2char; see --context-to-layers)
        residuals: add a layer's input to its output from this layer on, 2 or above, in the encoder and the decoder; 0
            for none
        encoder_bidirectional_layers: number of encoder layers, the lowest, that have both directions; 0 for all
        encoder_reads: directions of the layer below that each direction of an upper bidirectional encoder layer reads:
            'both', its 'own' (Marian), or the 'other' one (Nematus's alternating layers); residuals add the same
        context_to_layers: give the context to every decoder layer, not only to the first
        encoder_transition_depth: cells that an encoder layer steps in a row for each token; the second and further
            cells read only the state
        decoder_transition_depth: the same for the decoder's lowest layer, all cells counted: at least 2 with
            --decoder-transition conditional
        context_gate: gate in the GRU that reads the context: it scales the source ('source'), the word and the state
            ('target'), or one up and the other down ('both'); with --context-to-layers every layer that steps with
            attention has a gate, and the layers above (--decoder-transition simple, conditional) read the context
            without one
        initial_state: start of the decoder: from the backward state at the first word (or the forward state at the
            last, if the top layer has no backward state), through tanh ('first') or not ('linear'); from the mean
            annotation ('mean'); or zeros ('zero')
        readout: layers between state and vocabulary: deep output with maxout, the sum of state, word and context
            ('linear') or its tanh, two layers of relu, or none, so the vocabulary layer reads the state alone ('state')
        adaptive_gru_released: ablation: the decoder's second adaptive GRU of the authors' released code, where 1-g
            scales the whole candidate and biases are not weighed
        adaptive_output: weigh the state, the word and the context in the readout's sum
        adaptive_output_swapped: ablation: swap the two sets of projections of these weights, as in the authors' code
        bridge_source: add the source embeddings to the annotations (source-side bridge)
        bridge_target: let the cell that reads the context also read the embedding of the most attended source word
            (target-side bridge)
        bridge_direct: map source embeddings towards target embeddings, for --criterion
            label_smoothed_cross_entropy_with_costs: the most attended word's ('hard'), the mean weighted by attention
            ('soft'), or 'none'
        bridge_direct_alone: allow --bridge-direct without --bridge-source
        copying: generate each target word or copy the attended source word (See et al. 2017): the same symbol, or <unk>
            where the target dictionary lacks it
        attention_reads_target: let attention's query also read the previous target word; with two levels, the upper
            one's query (char2char)
        readout_all_layers: let the readout read the states of all decoder layers, not only of the highest; needs layers
            that step with attention, as with --decoder-transition late and stacked (char2char)
        initial_state_per_layer: start every decoder layer from its own affine map, not all from the same state
            (char2char)
        zero_start: let the decoder read zeros before the first word, not the embedding of the sentence's end (Nematus,
            Marian)
        input_feed: feed the previous context to the decoder's first cell (InputFeed)
        attention_score: comparison of the state q and an annotation s: v·tanh(W q + U s + b) ('additive'), the same
            with g v/|v| instead of v ('additive_normed'), q·s ('dot', for equal widths), (W q)·(U s) / √width
            ('scaled'), q·(W s) ('bilinear'), 'scaled' in each of --attention-heads, with a share of --attention-dim
            and its own values ('multihead'), or the same for all positions ('level', of hard_monotone)
        attention_normalizer: function that turns attention scores into weights: 'softmax', or with exact zeros
            'sparsemax' or 'entmax' (α = 1.5), which need the package entmax
        attention_window: source positions that attention may use: the whole sentence ('none'), only near position i at
            step i ('monotone', Luong's local-m), or near a position predicted from the state, with less weight further
            away ('predictive', local-p)
        attention_history: what attention reads of earlier steps, several joined by '+': 'context' (RecAtt), 'state'
            (RNNAtt), 'distance' (HybridAtt1), 'convolution' (HybridAtt2), 'coverage' (the sum of all earlier weights),
            'fertility' (that sum divided by a learned fertility), 'coverage_gru' (a GRU over the weights), or 'none'
        part_args: options of components, as JSON by the name of a component and of its option, such as '{"decay":
            {"rate": 0.9}}'
        decoder_condition: add CondDec's condition to the decoder's cell
        features: use of source features (--task string_transduction --features-column): the decoder attends to their
            embeddings from its previous state, and its first cell reads the result ('attended'); or they precede the
            symbols of the source ('prepended')
        dropout: dropout wherever no option below sets it
        encoder_dropout_in: dropout after the source embeddings
        encoder_dropout_words: share of source words whose whole embedding is dropped in training; --dropout does not
            set it
        encoder_dropout_out: dropout after the annotations, and between encoder layers
        encoder_dropout_hidden: dropout of the previous state within the encoder's recurrences, one mask per sentence;
            --dropout does not set it
        decoder_dropout_in: dropout after the target embeddings
        decoder_dropout_words: share of previous target words whose whole embedding is dropped in training; --dropout
            does not set it
        decoder_dropout_out: dropout after the readout, and between decoder layers
        decoder_dropout_hidden: the same as --encoder-dropout-hidden, within the decoder's recurrences
        layer_norm: layer normalisation: 'none', in the cells of the 'encoder', or 'all': also in the decoder's cells,
            its initial state, attention's projected query and keys, and the readout's three maps
        gate_bias: initial bias of the reset and update gates of every GRU; 1 makes states last longer at the start
        init: initial values of matrices that are not orthogonal: 'normal' with --init-std, or 'uniform' between ±√(6 /
            (in + out)), embeddings between ±0.01
        init_std: standard deviation of --init normal; the papers' 0.01 suits their widths, small models learn sooner
            with 0.05
        encoder_embed_path: file of pretrained source embeddings: lines of a word, as in the dictionary, and its numbers
            (word2vec, fastText, GloVe)
        decoder_embed_path: file of pretrained target embeddings, likewise
        encoder_freeze_embed: do not train the source embeddings
        decoder_freeze_embed: do not train the target embeddings
        share_decoder_input_output_embed: tie the vocabulary layer to the target embeddings; the readout takes their
            width
        share_all_embeddings: tie source embeddings, target embeddings and the vocabulary layer (needs a joined
            dictionary)
        warm_start: start from the parameters of this checkpoint that fit; it may have another architecture; a resumed
            training still continues from its own checkpoint
        compute_dtype: number type of the matrix products in training; with 'bfloat16' parameters, states and softmax
            stay float32; 'auto' measures products of the model's sizes at the start and takes bfloat16 if it is at
            least 1.1 times as fast, but always float32 on a GPU; a resumed training keeps its type
        search_dtype: number type of the decoder's matrix products in search with float32 parameters, for
            --model-overrides: 'float32', 'bfloat16' (TF32 on CUDA), or 'auto': bfloat16 if it is at least 1.1 times as
            fast
        coverage_penalty: strength of the coverage penalty in search, for --model-overrides: it lowers hypotheses that
            leave source tokens unattended (Wu et al. 2016, who use 0.2); tune it together with --lenpen
        recompute_steps: keep only the decoder's states of every N-th step for the backward pass, and recompute the
            others: less memory for long texts, more time; 0 keeps all
        compile: let torch.compile fuse the kernels of a decoder step in training; needs torch 2.3 and a compiler
        cuda_graphs: in training on a GPU, launch the decoder's steps and their gradients as one pair of CUDA graphs per
            batch shape, from its second use; shapes beyond the first 64, and steps that cannot be captured, run as
            without graphs. Graphs take memory; --required-seq-len-multiple 4 makes fewer shapes, with more padding. Not
            with --compile. Beam search on a GPU launches each step as one graph anyway, unless this is false
    """

    def _get_help(self, attribute_name: str) -> Any:
        """An option's help in stock fairseq: the text, and all names or component options that it takes."""
        names = self._get_meta(attribute_name, "names")
        text = super()._get_help(attribute_name)
        if attribute_name == "part_args":
            return f"{text}; available: {'; '.join(part_options()) or 'none here'}"
        return text if names is None else f"{text}; choose from {', '.join(names)}"

    # sizes
    encoder_embed_dim: Optional[int] = size(rnnsearch=620)
    encoder_hidden_size: Optional[int] = size(rnnsearch=1000)
    encoder_layers: Optional[int] = size(rnnsearch=1)
    decoder_embed_dim: Optional[int] = size(rnnsearch=620)
    decoder_hidden_size: Optional[int] = size(rnnsearch=1000)
    decoder_layers: Optional[int] = size(rnnsearch=1)
    decoder_out_embed_dim: Optional[int] = size(rnnsearch=half_width)
    attention_dim: Optional[int] = size(rnnsearch=hidden_width)

    encoder_char_hidden_size: Optional[int] = size(rnnsearch=512)
    attention_via_dim: Optional[int] = size(rnnsearch=128)

    # parts
    encoder_type: Optional[ENCODER] = option(rnnsearch="bidirectional")  # type: ignore[valid-type]
    encoder_filters: Optional[str] = option(rnnsearch="200-200-250-250-300-300-300-300")
    encoder_pooling: Optional[int] = size(rnnsearch=5)
    encoder_highway_layers: Optional[int] = option(rnnsearch=4, bound=at_least(0, "none"))
    encoder_char_cell: Optional[str] = option(rnnsearch="lstm", names=CELLS)
    attention_via: Optional[bool] = switch()
    attention_via_unguided: Optional[bool] = switch()
    attention_via_words_alone: Optional[bool] = switch()
    encoder_cell: Optional[str] = option(rnnsearch="gru", names=CELLS)
    decoder_cell: Optional[str] = option(rnnsearch="gru", names=CELLS)
    decoder_transition: Optional[TRANSITION] = option(rnnsearch="simple")  # type: ignore[valid-type]
    residuals: Optional[int] = option(rnnsearch=0, bound=RESIDUALS)
    encoder_bidirectional_layers: Optional[int] = option(rnnsearch=0, bound=at_least(0, "all"))
    encoder_reads: Optional[ENCODER_READS] = option(rnnsearch="both")  # type: ignore[valid-type]
    context_to_layers: Optional[bool] = switch()
    encoder_transition_depth: Optional[int] = size(rnnsearch=1)
    decoder_transition_depth: Optional[int] = option(rnnsearch=least_depth)
    recurrent_bias: Optional[bool] = option_of(GRUCell, "recurrent_bias")
    context_gate: Optional[CONTEXT_GATE] = option(rnnsearch="none")  # type: ignore[valid-type]
    initial_state: Optional[INITIAL_STATE] = option(rnnsearch="first")  # type: ignore[valid-type]
    readout: Optional[str] = option(rnnsearch="maxout", names=READOUTS)
    readout_biases: Optional[bool] = option_of(Readout, "biases")
    adaptive_gru_released: Optional[bool] = switch()
    adaptive_output: Optional[bool] = switch()
    adaptive_output_swapped: Optional[bool] = switch()
    bridge_source: Optional[bool] = switch()
    bridge_target: Optional[bool] = switch()
    bridge_direct: Optional[BRIDGE_DIRECT] = option(rnnsearch="none")  # type: ignore[valid-type]
    bridge_direct_alone: Optional[bool] = switch()
    copying: Optional[bool] = switch(alias="--copy")  # a configuration's own `copy` is a method
    attention_reads_target: Optional[bool] = switch()
    readout_all_layers: Optional[bool] = switch()
    initial_state_per_layer: Optional[bool] = switch()
    zero_start: Optional[bool] = switch()
    input_feed: Optional[bool] = switch()
    attention_score: Optional[str] = option(rnnsearch="additive", names=SCORES)
    attention_heads: Optional[int] = option_of(MultiHeadAttention, "heads")
    attention_normalizer: Optional[str] = option(rnnsearch="softmax", names=NORMALIZERS)
    attention_temperature: Optional[float] = option_of(Normalizer, "temperature")
    attention_window: Optional[str] = option(rnnsearch="none", names=WINDOWS)
    attention_window_width: Optional[int] = option_of(Window, "width")
    attention_history: Optional[str] = option(rnnsearch="none", names=HISTORIES)
    attention_filters: Optional[int] = option_of(ConvolutionHistory, "filters")
    attention_filter_width: Optional[int] = option_of(ConvolutionHistory, "width")
    attention_coverage_dim: Optional[int] = option_of(CoverageGRUHistory, "width")
    part_args: Any = option()
    decoder_condition: Optional[bool] = switch()

    features: Optional[FEATURES] = option(rnnsearch="attended")  # type: ignore[valid-type]

    # regularisation
    dropout: Optional[float] = option(bound=within(0, 1))
    encoder_dropout_in: Optional[float] = rate()
    encoder_dropout_words: Optional[float] = rate()
    encoder_dropout_out: Optional[float] = rate()
    encoder_dropout_hidden: Optional[float] = rate()
    decoder_dropout_in: Optional[float] = rate()
    decoder_dropout_words: Optional[float] = rate()
    decoder_dropout_out: Optional[float] = rate(rnnsearch=0.5)
    decoder_dropout_hidden: Optional[float] = rate()

    layer_norm: Optional[LAYER_NORM] = option(rnnsearch="none")  # type: ignore[valid-type]
    layer_norm_joint: Optional[bool] = option_of(GRUCell, "joint_norm")
    gate_bias: Optional[float] = option(rnnsearch=0.0, bound=FINITE)
    init: Optional[INIT] = option(rnnsearch="normal")  # type: ignore[valid-type]
    init_std: Optional[float] = option(rnnsearch=0.01, bound=above(0))

    # embeddings
    encoder_embed_path: Optional[str] = option()
    decoder_embed_path: Optional[str] = option()
    encoder_freeze_embed: bool = option(default=False)
    decoder_freeze_embed: bool = option(default=False)
    share_decoder_input_output_embed: Optional[bool] = switch()
    share_all_embeddings: Optional[bool] = switch()

    warm_start: Optional[str] = option()
    compute_dtype: DTYPE = option(default="float32")  # type: ignore[valid-type]
    search_dtype: DTYPE = option(default="float32")  # type: ignore[valid-type]
    coverage_penalty: float = option(default=0.0, bound=at_least(0, "off"))
    recompute_steps: int = option(default=0, bound=at_least(0, "off"))
    compile: bool = option(default=False)
    cuda_graphs: Optional[bool] = option()
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


def flag(option: str) -> str:
    """An option's flag on the command line."""
    return "--" + option.replace("_", "-")


@cache
def described(key: str) -> dict[str, Any]:
    """The entries ``key`` of the options' metadata, such as ``rnnsearch``, ``bound`` or ``names``, if they have one."""
    said = {one.name: one.metadata.get(key) for one in dataclasses.fields(AttentionRNNConfig)}
    return {name: value for name, value in said.items() if value is not None}


def flags_of(component: type[Part]) -> dict[str, str]:
    """The model's options that set options of a component, by the names of the component's options."""
    own = component.own_options()
    return {
        name: option
        for option, (owner, name) in described("sets").items()
        if issubclass(component, owner) and name in own
    }


def custom_options(component: type[Part]) -> dict[str, Option]:
    """The options of a component that only ``--part-args`` sets."""
    flags = flags_of(component)
    return {name: option for name, option in component.own_options().items() if name not in flags}


@cache
def kinds() -> dict[str, Any]:
    """The type of each option, without the ``None`` of an optional one."""
    hints = get_type_hints(AttentionRNNConfig)
    return {
        name: next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType) for name, hint in hints.items()
    }


def mistaken(name: str, value: Any) -> str:
    """The rest of a message on an option's allowed values; empty if ``value`` is allowed."""
    kind = kinds()[name]
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = [str(choice.value) for choice in kind]
        return "" if str(value) in names else f": it is one of {', '.join(names)}"
    fits = kind is Any or type(value) in ((int, float) if kind is float else (kind,))
    return "" if fits else f": it is of {kind.__name__}"


def part_options() -> list[str]:
    """The custom options of all components, each as ``part: option (default): help``, for argparse."""
    lines = [
        f"{name}: {own} ({option.default}): {option.help}".replace("%", "%%")
        for table in described("names").values()
        for name, part in table.items()
        for own, option in custom_options(part).items()
    ]
    return [*dict.fromkeys(lines)]  # several options share the cells' table


def complete(cfg) -> None:
    """Add the options that the version which saved ``cfg`` did not have, at their defaults."""
    with open_dict(cfg) if OmegaConf.is_config(cfg) else contextlib.nullcontext():
        for option in dataclasses.fields(AttentionRNNConfig):
            if not hasattr(cfg, option.name):
                setattr(cfg, option.name, option.default)
