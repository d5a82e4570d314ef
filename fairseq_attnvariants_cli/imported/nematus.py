"""Conversion of networks of Nematus and Marian to the equations of this package.

Sennrich et al. 2017 (https://arxiv.org/abs/1703.04357), Miceli Barone et al. 2017 (https://arxiv.org/abs/1707.07631)
and Junczys-Dowmunt et al. 2018 (https://arxiv.org/abs/1804.00344).  In all of them, a cell before attention adds its
bias to its input, and a cell after attention adds it in the recurrent product.  The arrays show the kind of layer
normalisation: none, Nematus's (separate for gates and candidate, biases inside), or Marian's (joint, one bias after).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_attnvariants.nn.layer_norm import LayerNorm
from fairseq_attnvariants.nn.layers import FusedLayer

from ..text.files import UserError
from .archive import Arrays, Options, shown
from .names import cell_array, layer, nematus_names, parts

NEVER = -1e4  # logit of <s> and <pad>, whose probability is then 0 in any number type
# LN(s x) with an epsilon e is LN(x) with e / s²: this makes 1e-9, Marian's, of the 1e-5 here
MARIAN_SCALE = 100.0

# options that change the equations, with all their names, and the values that this package has equations for
NEMATUS: dict[tuple[str, ...], Sequence[Any]] = {
    ("factors",): (1,),
    ("model_type",): ("rnn",),
    ("encoder",): ("gru",),
    ("decoder",): ("gru_cond",),
    ("weight_normalisation",): (False,),
    ("deep_fusion_lm",): (False,),
    ("softmax_mixture_size",): (1,),
    ("rnn_lexical_model", "lexical_model"): (False,),
    ("layer_normalization_type",): ("layernorm",),
    ("output_hidden_activation",): ("tanh",),
}
NEMATUS_UPPER: dict[tuple[str, ...], Sequence[Any]] = {
    ("decoder_deep",): ("gru",),
    ("rnn_dec_high_transition_depth", "dec_high_recurrence_transition_depth"): (1,),
}
MARIAN: dict[tuple[str, ...], Sequence[Any]] = {
    ("type",): ("nematus", "amun", "s2s"),
    ("enc-type",): ("bidirectional", "alternating", "bi-unidirectional"),
    ("enc-cell",): ("gru", "gru-nematus"),
    ("dec-cell",): ("gru", "gru-nematus"),
    ("dec-cell-high-depth",): (1,),
    ("right-left",): (False,),
    ("input-types",): ([], ["sequence"], ["sequence", "sequence"]),
    ("special-vocab",): ([],),
    ("ulr",): (False,),
    ("lemma-dim-emb",): (0,),
    ("dec-cell-base-depth",): range(2, 1000),
}
# options that say what the arrays show, by the attribute of :class:`Network` that has it
SIZES: dict[str, tuple[str, ...]] = {
    "source_width": ("dim_word", "embedding_size", "dim-emb"),
    "hidden": ("dim", "state_size", "dim-rnn"),
    "encoder_layers": ("enc_depth", "rnn_enc_depth", "enc-depth"),
    "encoder_depth": ("enc_recurrence_transition_depth", "rnn_enc_transition_depth", "enc-cell-depth"),
    "decoder_layers": ("dec_depth", "rnn_dec_depth", "dec-depth"),
    "decoder_depth": ("dec_base_recurrence_transition_depth", "rnn_dec_base_transition_depth", "dec-cell-base-depth"),
}
# the same for switches: the arrays show that one of them is on, or that none is
SWITCHES: dict[str, tuple[str, ...]] = {
    "tied": ("tie_decoder_embeddings", "tied-embeddings", "tied-embeddings-all"),
    "one_embedding": ("tie_encoder_decoder_embeddings", "tied-embeddings-src", "tied-embeddings-all"),
    "normalised": ("layer_normalisation", "rnn_layer_normalization", "layer-normalization"),
}

Two = tuple[Any, Any]  # a cell's weights, biases or norms: of the input's sum, or None, and of the recurrent sum


def read_network(path: str, arrays: dict[str, np.ndarray], options: Options, shared: bool) -> "Network":
    """Return the network that has these arrays.

    Args:
        path: the file, for messages.
        arrays: all arrays of the file.
        options: the toolkit's options of the network.
        shared: whether both dictionaries are the same.

    Raises:
        UserError: this package has no such network, or an array is missing or of another shape.
    """
    check_options(options, MARIAN if options.marian else NEMATUS)
    known = {name for names in (*NEMATUS, *SIZES.values(), *SWITCHES.values()) for name in names}
    if options.source != path and not options.marian and not known & options.values.keys():
        raise UserError(f"{options.source} has no option of Nematus, such as dim_word: give the file of this model")
    alternating = options.get("enc-type") == "alternating"
    found = {new: arrays[name] for new, name in nematus_names(path, arrays, alternating).items()}
    for name in found:
        if name.startswith("Wemb") and name[4:].isdecimal():
            raise UserError(f"{path}: factors of source words, of which {name} is one, are what no model here has")
    return Network(Arrays(path, dropped_out(found, options)), options, alternating, shared)


def check_options(options: Options, table: dict[tuple[str, ...], Sequence[Any]]) -> None:
    """Refuse options whose values this package has no equations for.

    Raises:
        UserError: there is such an option; the message names the first.
    """
    for names, values in table.items():
        value = options.get(*names, default=values[0])
        if not any(type(value) is type(one) and value == one for one in values):
            name = next(name for name in names if options.values.get(name) is not None)
            if isinstance(values, range):
                fitting = f"{values[0]} or more"
            else:
                fitting = " or ".join(str(one) for one in values if one != [])
            # a text or a truth value can look like the number that is read
            said = repr(value) if isinstance(value, str) and value in map(str, values) else shown(value, 100)
            raise UserError(
                f"{options.source}: {name} is {said}, which no model here has"
                + (f" (what is read is {fitting})" if fitting else "")
            )


def dropped_out(arrays: dict[str, np.ndarray], options: Options) -> dict[str, np.ndarray]:
    """Scale matrices as in translation, where Nematus before 0.1 multiplies inputs by the probability to be kept.

    Raises:
        UserError: the embeddings are tied, and one matrix would need two scales.
    """
    version = options.get("model_version", default=0)
    if options.marian or not switched(options, "use_dropout") or not _before_0_1(version):
        return arrays
    if switched(options, "tie_decoder_embeddings"):
        raise UserError(
            f"{options.source}: use_dropout with model_version {version} scales an embedding otherwise than an output, "
            "and tie_decoder_embeddings makes them one: train it on with a newer Nematus"
        )
    places = ("embedding", "hidden", "source", "target")
    embedding, hidden, source, target = (1 - rate(options, f"dropout_{place}") for place in places)
    words = {"ff_logit_prev_W": target, "decoder_W": target, "decoder_Wx": target}
    words.update((f"encoder{side}_{root}", source) for side in ("", "_r") for root in ("W", "Wx"))
    scaled = {}
    for name, array in arrays.items():
        matrix = array.ndim == 2 and array.shape[0] > 1 and not name.startswith("Wemb")
        factor = embedding * words[name] if name in words else hidden
        scaled[name] = array * factor if matrix else array
    return scaled


def switched(options: Options, name: str) -> bool:
    """Return whether an option is switched on.

    Raises:
        UserError: the option is no truth value; a text such as "false" would count as true.
    """
    value = options.get(name, default=False)
    if not isinstance(value, (bool, int, float)) or value not in (0, 1):
        raise UserError(f"{options.source}: {name} is {shown(value, 100)!r}, and true or false is wanted")
    return bool(value)


def rate(options: Options, name: str) -> float:
    """Return the probability of dropout that an option has.

    Raises:
        UserError: the option is not a number from 0 on and below 1.
    """
    value = options.get(name, default=0)
    if not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise UserError(
            f"{options.source}: {name} is {shown(value, 100)}, and a number from 0 on and below 1 is wanted"
        )
    return value


def _before_0_1(version: Any) -> bool:
    try:
        return float(version) < 0.1
    except (TypeError, ValueError, OverflowError):
        return False


class Network:
    """A network of Nematus or Marian. It derives options from its arrays, and fills a model's parameters with them.

    Args:
        arrays: the arrays, by Nematus's names.
        options: the toolkit's options of the network.
        alternating: whether the encoder is Marian's alternating one, which joins its stacks in the other order.
        shared: whether both dictionaries are the same.
    """

    def __init__(self, arrays: Arrays, options: Options, alternating: bool, shared: bool):
        self.arrays = arrays
        self.given = options
        self.encoder_layers, self.encoder_depth, self.decoder_depth, self.decoder_layers = parts(arrays.arrays)
        self.crossed_output = alternating and self.encoder_layers % 2 == 0
        self.source_words, self.source_width = arrays.shape("Wemb")
        self.target = "Wemb_dec" if "Wemb_dec" in arrays else "Wemb"
        self.target_words, self.target_width = arrays.shape(self.target)
        self.hidden = arrays.shape("encoder_U")[0]
        self.state = arrays.shape("decoder_U")[0]
        self.attention = arrays.shape("decoder_Wc_att")[1]
        self.features = arrays.shape("ff_logit_lstm_W")[1]
        self.tied = "ff_logit_W" not in arrays and "ff_logit_Wt" not in arrays
        self.one_embedding = self.target == "Wemb"
        self.normalised = self.norm_of("decoder_U_lns", "decoder_gamma2") != "none"
        self.filled: list[Tensor] = []
        self.check_options()
        self.options = self.model_options(shared)

    # options of the network

    def check_options(self) -> None:
        """Refuse options of another network, and a network that lacks an output matrix, or whole layers or cells.

        Raises:
            UserError: an option differs from what the arrays show.
        """
        given = {name: value for name, value in self.given.values.items() if value is not None}
        told: dict[str, dict[str, Any]] = {
            attribute: {name: given[name] for name in names if given.get(name)} for attribute, names in SIZES.items()
        }
        for attribute, names in SWITCHES.items():
            asked = {name: switched(self.given, name) for name in names if name in given}
            told[attribute] = {" or ".join(asked): any(asked.values())} if asked else {}
        for attribute, values in told.items():
            for name, value in values.items():
                if value != getattr(self, attribute):
                    said = repr(value) if isinstance(value, str) else shown(value, 100)
                    raise UserError(
                        f"{self.given.source}: {name} is {said}, and the arrays of {self.arrays.path} "
                        f"show {getattr(self, attribute)}: these are the options of another model, or arrays are "
                        "missing"
                    )

    def model_options(self, shared: bool) -> dict[str, Any]:
        """Return the options of the model in this package that has the network's equations."""
        cells = {prefix: self.norm_of(f"{prefix}_U_lns", f"{prefix}_gamma2") for prefix in ("encoder", "decoder")}
        norms = {*cells.values()}
        readout = self.norm_of("ff_logit_prev_ln_s", "ff_logit_prev_gamma")
        if len(norms) > 1 or (readout == "none") != (norms == {"none"}):
            raise UserError(
                f"{self.arrays.path}: the cells of the encoder ({cells['encoder']}) and the decoder "
                f"({cells['decoder']}) and the readout ({readout}) differ in layer normalisation"
            )
        [norm] = norms
        upper = self.decoder_layers > 1
        if upper and not self.given.marian:
            check_options(self.given, NEMATUS_UPPER)
        tied, one = self.tied, self.tied and self.one_embedding and shared
        return {
            "encoder_embed_dim": self.source_width,
            "encoder_hidden_size": self.hidden,
            "encoder_layers": self.encoder_layers,
            "encoder_transition_depth": self.encoder_depth,
            "decoder_embed_dim": self.target_width,
            "decoder_hidden_size": self.state,
            "decoder_layers": self.decoder_layers,
            "decoder_transition_depth": self.decoder_depth,
            "decoder_out_embed_dim": self.features,
            "attention_dim": self.attention,
            "layer_norm": "none" if norm == "none" else "all",
            "layer_norm_joint": norm == "marian",
            "recurrent_bias": norm != "marian",
            "readout_biases": readout == "nematus",
            "zero_start": True,
            "share_decoder_input_output_embed": tied and not one,
            "share_all_embeddings": one,
            "context_to_layers": upper and self.arrays.shape("decoder_2_W")[0] > self.state,
            **self.encoder_options(upper),
        }

    def encoder_options(self, upper: bool) -> dict[str, Any]:
        """Return the options for the inputs of the encoder's layers, and for the place of residuals."""
        deep, both = self.encoder_layers > 1, self.has_directions(2)
        skip = self.given.get("skip", default=False) if self.given.marian else deep or upper
        bidirectional = self.given.get("rnn_enc_depth_bidirectional", "enc_depth_bidirectional")
        if deep and not self.given.marian and (not both or bidirectional not in (None, self.encoder_layers)):
            raise UserError(
                f"{self.arrays.path}: enc_depth_bidirectional below enc_depth, whose upper layers are twice as wide, "
                "is what no model here has"
            )
        if not deep or both:
            other = not self.given.marian or self.given.get("enc-type") == "alternating"
            reads = {"encoder_reads": "other" if other else "own"} if deep else {}
            return {**reads, "residuals": 2 if skip and (deep or upper) else 0}
        if skip and upper:
            raise UserError(
                f"{self.arrays.path}: enc-type bi-unidirectional with skip and several decoder layers, whose residuals "
                "begin at different layers, is what no model here has"
            )
        residuals = 3 if skip and self.encoder_layers > 2 else 0
        return {"encoder_bidirectional_layers": 1, "residuals": residuals}

    def norm_of(self, nematus: str, marian: str) -> str:
        """Return the kind of layer normalisation: the one whose array is present, or ``none``."""
        return "nematus" if nematus in self.arrays else "marian" if marian in self.arrays else "none"

    # parameters of the model

    @torch.no_grad()
    def fill(self, model: Any, source: Sequence[int], target: Sequence[int]) -> None:
        """Fill all parameters of a model that has these options.

        Args:
            source, target: the row of each symbol of its dictionaries, -1 for symbols without a row.

        Raises:
            UserError: an array is missing, of another shape, or unread.
        """
        encoder, decoder = model.encoder.network.rnn, model.decoder.network
        transition = decoder.transition
        for side, name, order in ((model.encoder, "Wemb", source), (model.decoder, self.target, target)):
            self.write(side.embed_tokens.weight, self.rows(self.arrays.matrix(name, *self.arrays.shape(name)), order))
        for number, one in enumerate(encoder.layers, start=1):
            self.fill_layer(one, "encoder", number)
        self.fill_cell(transition.before, "decoder")
        after = [*transition.after.cells] if self.decoder_depth > 2 else [transition.after]
        for number, cell in enumerate(after):
            self.fill_cell(cell, "decoder", number, after=True)
        for number, one in enumerate(decoder.above.layers if self.decoder_layers > 1 else [], start=2):
            self.fill_layer(one, "decoder", number)
        self.fill_attention(transition.attention)
        self.fill_map(decoder.initial.projection, decoder.initial.norm, "ff_state", crossed=True)
        readout = decoder.readout
        self.fill_map(readout.hidden, readout.hidden_norm, "ff_logit_lstm")
        self.fill_map(readout.target, readout.target_norm, "ff_logit_prev")
        self.fill_map(readout.context, readout.context_norm, "ff_logit_ctx", crossed=True)
        if readout.target.bias is None and not isinstance(readout.hidden_norm, LayerNorm):
            for name in ("ff_logit_prev_b", "ff_logit_ctx_b"):  # the three are added
                readout.hidden.bias += torch.from_numpy(self.arrays.vector(name, self.features))
        self.fill_output(model.decoder.output_projection, target)
        self.arrays.check_all_read()
        empty = {id(parameter) for parameter in model.parameters()} - {id(parameter) for parameter in self.filled}
        assert not empty, [name for name, parameter in model.named_parameters() if id(parameter) in empty]

    def write(self, parameter: Tensor, value: np.ndarray) -> None:
        """Copy a value to a parameter, and record that the parameter is filled."""
        assert parameter.shape == value.shape, (parameter.shape, value.shape)
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        self.filled.append(parameter)

    def rows(self, matrix: np.ndarray, order: Sequence[int], missing: float = 0.0) -> np.ndarray:
        """Return the rows of a matrix, or entries of a vector, in this order; ``missing`` replaces those at -1."""
        found = matrix[np.maximum(order, 0)]
        found[np.asarray(order) < 0] = missing
        return found

    def fill_layer(self, one: Any, side: str, number: int) -> None:
        """Fill a layer of the encoder, or of the decoder above the transition."""
        for direction in range(2 if side == "encoder" and self.has_directions(number) else 1):
            prefix = layer(side, number, reverse=direction == 1)
            if isinstance(one, FusedLayer):
                inputs, recurrent, bias, recurrent_bias = one.all_weights[direction]
                self.fill_sums(prefix, 0, False, (None, None), (inputs, recurrent), (bias, recurrent_bias))
                continue
            cell = one.cells[direction]
            for place, part in enumerate(getattr(cell, "cells", [cell])):
                self.fill_cell(part, prefix, place)

    def has_directions(self, number: int) -> bool:
        """Return whether an encoder layer has both directions."""
        return layer("encoder", number, reverse=True) + "_U" in self.arrays

    def fill_cell(self, cell: Any, prefix: str, number: int = 0, after: bool = False) -> None:
        """Fill a cell; after attention its bias is in the recurrent product."""
        inputs = next(iter(cell.inputs.values()), None)
        weight, bias = (None, cell.bias) if inputs is None else (inputs.weight, inputs.bias)
        weights, biases = (weight, cell.recurrent.weight), (bias, cell.recurrent.bias)
        self.fill_sums(prefix, number, after, (cell.input_norm, cell.recurrent_norm), weights, biases)

    def fill_sums(self, prefix: str, number: int, after: bool, norms: Two, weights: Two, biases: Two) -> None:
        """Fill the parameters of a cell's two sums, ``W x + b`` and ``U h + b_u``, and of their normalisations.

        In Nematus's TensorFlow version, further cells of the encoder may have no bias, and a layer above the transition
        has its bias in the recurrent product.
        """
        (inputs, recurrent), (bias, recurrent_bias) = weights, biases
        n = recurrent.size(1)
        apart = ("", 2 * n), ("x", n)  # gates and candidate

        def name(root: str, norm: str = "") -> str:
            return cell_array(prefix, number, after, root, norm)

        def matrix(root: str, width: int) -> np.ndarray:
            return np.concatenate([self.arrays.matrix(name(root + end), width, size) for end, size in apart], axis=1)

        def vector(root: str, norm: str = "") -> np.ndarray:
            return np.concatenate([self.arrays.vector(name(root + end, norm), size) for end, size in apart])

        marian = name("gamma2") in self.arrays
        scale = MARIAN_SCALE if marian else 1
        if inputs is not None:
            self.write(inputs, self.uncrossed(matrix("W", inputs.size(1)), after).T * scale)
        self.write(recurrent, matrix("U", n).T * scale)
        has_bias = name("b") in self.arrays or name("bx") in self.arrays
        further = self.tensorflow() and prefix.startswith("encoder") and number > 0
        zeros = np.zeros(3 * n)
        b = vector("b") if has_bias or not further else zeros
        inside = recurrent_bias is not None and (after or (self.tensorflow() and prefix.startswith("decoder_")))
        before = not after and inputs is not None
        self.write(bias, zeros if inside or (marian and (before or after)) else b)
        if recurrent_bias is not None:
            self.write(recurrent_bias, b if inside else zeros)
        for norm, weight, root, gain, behind in zip(norms, weights, "WU", ("gamma1", "gamma2"), (before, after)):
            if weight is None or not isinstance(norm, LayerNorm):
                continue
            self.write(norm.weight, self.arrays.vector(name(gain), 3 * n) if marian else vector(root, "_lns"))
            self.write(norm.bias, (b if behind else zeros) if marian else vector(root, "_lnb"))

    def tensorflow(self) -> bool:
        """Return whether Nematus's TensorFlow version trained the network."""
        return not self.given.marian and "embedding_size" in self.given.values

    def uncrossed(self, matrix: np.ndarray, reads_annotations: bool) -> np.ndarray:
        """Return a matrix that reads annotations with its rows as in this package: the forward direction first."""
        if not (reads_annotations and self.crossed_output):
            return matrix
        return np.concatenate(np.split(matrix, 2)[::-1])

    def fill_attention(self, attention: Any) -> None:
        """Fill the additive score."""
        size, marian = self.attention, "decoder_att_gamma1" in self.arrays
        scale = MARIAN_SCALE if marian else 1
        self.write(attention.query.weight, self.arrays.matrix("decoder_W_comb_att", self.state, size).T * scale)
        key = self.uncrossed(self.arrays.matrix("decoder_Wc_att", attention.key.in_features, size), True)
        self.write(attention.key.weight, key.T * scale)
        self.write(attention.vector, self.arrays.vector("decoder_U_att", size))
        bias, zeros = self.arrays.vector("decoder_b_att", size), np.zeros(size)
        self.write(attention.key.bias, zeros if marian else bias)
        if not isinstance(attention.key_norm, LayerNorm):
            return
        for norm, root, gain, behind in (
            (attention.key_norm, "decoder_Wc_att", "decoder_att_gamma1", bias),
            (attention.query_norm, "decoder_W_comb_att", "decoder_att_gamma2", zeros),
        ):
            self.write(norm.weight, self.arrays.vector(gain if marian else f"{root}_lns", size))
            self.write(norm.bias, behind if marian else self.arrays.vector(f"{root}_lnb", size))

    def fill_map(self, linear: nn.Linear, norm: nn.Module, name: str, crossed: bool = False) -> None:
        """Fill an affine map and its normalisation; ``crossed`` means that it reads annotations."""
        marian, size = f"{name}_gamma" in self.arrays, linear.out_features
        matrix = self.uncrossed(self.arrays.matrix(f"{name}_W", linear.in_features, size), crossed)
        self.write(linear.weight, matrix.T * (MARIAN_SCALE if marian else 1))
        if linear.bias is None and not marian:
            return  # fill() adds its bias to another bias
        bias = self.arrays.vector(f"{name}_b", size)
        if linear.bias is not None:
            self.write(linear.bias, np.zeros_like(bias) if marian else bias)
        if isinstance(norm, LayerNorm):
            self.write(norm.weight, self.arrays.vector(f"{name}_gamma" if marian else f"{name}_ln_s", size))
            self.write(norm.bias, bias if marian else self.arrays.vector(f"{name}_ln_b", size))

    def fill_output(self, projection: nn.Linear, order: Sequence[int]) -> None:
        """Fill the vocabulary layer, which may be the target embedding."""
        if "ff_logit_Wt" in self.arrays:
            matrix = self.arrays.matrix("ff_logit_Wt", self.target_words, self.features)
        elif "ff_logit_W" in self.arrays:
            matrix = self.arrays.matrix("ff_logit_W", self.features, self.target_words).T
        else:
            matrix = self.arrays.matrix(self.target, self.target_words, self.features)
        self.write(projection.weight, self.rows(matrix, order))
        bias = np.zeros(self.target_words)  # Marian's output-omit-bias
        if "ff_logit_b" in self.arrays or not self.given.get("output-omit-bias", default=False):
            bias = self.arrays.vector("ff_logit_b", self.target_words)
        self.write(projection.bias, self.rows(bias, order, NEVER))
