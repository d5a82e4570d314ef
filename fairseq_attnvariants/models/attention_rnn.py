"""The fairseq adapter: tokens and dictionaries on one side, :mod:`..nn` on the other."""

import contextlib
import dataclasses
import logging
from typing import Dict, List, Optional, Tuple, Union

import torch
from fairseq import utils
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
    register_model_architecture,
)
from fairseq.modules import FairseqDropout
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from ..build import ConfigurationError, build_bridge, build_decoder, build_encoder, check, use_kernels
from ..config import AttentionRNNConfig
from ..hub import Pretrained
from ..nn.bridging import DirectBridge
from ..nn.decoder import Decoder
from ..nn.encoder import HierarchicalEncoder
from ..nn.init import Scheme, embedding_, initial_values, matrix_
from ..nn.state import Encoded, Memory, State, reorder, serve
from ..variants import VARIANTS, fill
from .fingerprint import NAME as FINGERPRINT
from .fingerprint import check_fingerprint, fingerprint
from .warm_start import WarmStart, warm_start

logger = logging.getLogger(__name__)

BASE = "rnnsearch"
COST_TERMS = {
    "conditions": "label_smoothed_cross_entropy_with_fertility",
    "bridged": "label_smoothed_cross_entropy_with_bridging",
}


@register_model("attention_rnn", dataclass=AttentionRNNConfig)
class AttentionRNNModel(Pretrained, FairseqEncoderDecoderModel):
    """An attentional recurrent encoder-decoder, composed as its configuration says.

    ``forward(src_tokens, src_lengths, prev_output_tokens)`` returns logits ``B x T x V`` and a dictionary with
    ``attn``, a list of one ``B x T x S`` float32 tensor in the columns of ``src_tokens``.
    """

    def __init__(self, cfg: AttentionRNNConfig, encoder: "Encoder", decoder: "IncrementalDecoder"):
        super().__init__(encoder, decoder)
        self.cfg = cfg
        self.told = False
        self.warm_started: Union[WarmStart, Exception, None] = None
        self.untrainable = use_kernels(cfg, self)

    @classmethod
    def build_model(cls, cfg: AttentionRNNConfig, task) -> "AttentionRNNModel":
        """Build from a configuration; options that are still None are rnnsearch's.

        Raises:
            ConfigurationError: options that are unknown or do not fit together.
        """
        complete(cfg)
        fill(cfg, BASE)
        check(cfg)
        source, target = task.source_dictionary, task.target_dictionary
        if cfg.share_all_embeddings and source != target:
            raise ConfigurationError(
                "--share-all-embeddings needs one dictionary for both languages: "
                "run fairseq-preprocess with --joined-dictionary"
            )
        if str(cfg.encoder_type) == "hierarchical" and not hasattr(source, "space"):
            raise ConfigurationError(
                "--encoder-type hierarchical (--arch ava) reads characters and needs to know the space among them: use "
                "--task char_translation, for fairseq-preprocess too"
            )
        if str(cfg.compute_dtype) == "bfloat16" and not fast_bfloat16():
            logger.warning(
                "--compute-dtype bfloat16: this processor has no bfloat16 instructions, so training will be slower "
                "than in float32"
            )
        with initial_values(Scheme(str(cfg.init) == "uniform", cfg.init_std)):
            target_embedding = embedding(
                target, cfg.decoder_embed_dim, cfg.decoder_embed_path, cfg.decoder_freeze_embed, "--decoder-embed-path"
            )
            source_embedding = target_embedding
            if not cfg.share_all_embeddings:
                source_embedding = embedding(
                    source,
                    cfg.encoder_embed_dim,
                    cfg.encoder_embed_path,
                    cfg.encoder_freeze_embed,
                    "--encoder-embed-path",
                )
            model = cls(
                cfg,
                Encoder(source, source_embedding, build_encoder(cfg), cfg),
                IncrementalDecoder(target, target_embedding, build_decoder(cfg), build_bridge(cfg), cfg),
            )
        if cfg.warm_start:
            # its checkpoint may be gone, and is not needed, where this model's own is about to be loaded
            try:
                model.warm_started = warm_start(model, cfg.warm_start)
            except Exception as error:  # noqa: BLE001
                model.warm_started = error
        return model

    def upgrade_state_dict_named(self, state_dict, name):
        """This model's own checkpoint takes the place of a warm start."""
        self.warm_started = None
        super().upgrade_state_dict_named(state_dict, name)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        with_cost_terms: bool = False,
        **kwargs,
    ):
        """Logits and attention of known target prefixes ``B x T``.

        With ``with_cost_terms`` the dictionary also holds what :attr:`cost_terms` names, for the criterions.
        """
        if self.training and self.untrainable is not None:
            raise self.untrainable
        if self.training and self.warm_started is not None:
            start, self.warm_started = self.warm_started, None
            if isinstance(start, Exception):
                raise start
            logger.info(start)
        if self.training and self.cost_terms and not (with_cost_terms or self.told):
            self.told = True
            names = " or ".join(f"--criterion {criterion}" for criterion in self.cost_terms.values())
            logger.warning(f"this model is being trained without the costs that its paper adds; {names} adds them")
        with self.autocast(src_tokens.device):
            return super().forward(
                src_tokens, src_lengths, prev_output_tokens, with_cost_terms=with_cost_terms, **kwargs
            )

    @property
    def cost_terms(self) -> Dict[str, str]:
        """What a criterion can make a cost of, by its key in the output: the criterion's name."""
        has = {"conditions": self.cfg.decoder_condition, "bridged": self.decoder.bridge is not None}
        return {term: criterion for term, criterion in COST_TERMS.items() if has[term]}

    def autocast(self, device: torch.device):
        """Matrix products in bfloat16 while training, where the configuration asks for it.

        Raises:
            ConfigurationError: the parameters are not float32.
        """
        if self.training and str(self.cfg.compute_dtype) == "bfloat16":
            if self.decoder.output_projection.weight.dtype != torch.float32:
                raise ConfigurationError(
                    "--compute-dtype bfloat16 keeps float32 parameters and does not go with --fp16 or --bf16: leave "
                    "one of them out"
                )
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


class Encoder(FairseqEncoder):
    """Embeds source tokens and encodes them."""

    def __init__(self, dictionary, embed_tokens: nn.Embedding, encoder: nn.Module, cfg):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.layers = encoder
        self.dropout_in = FairseqDropout(cfg.encoder_dropout_in, module_name="encoder_dropout_in")
        self.dropout_out = FairseqDropout(cfg.encoder_dropout_out, module_name="encoder_dropout_out")
        self.max_source_positions = cfg.max_source_positions
        self.space = dictionary.space() if isinstance(encoder, HierarchicalEncoder) else None
        self.register_buffer(FINGERPRINT, fingerprint(dictionary))

    def forward(self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, **kwargs) -> Dict[str, List[Tensor]]:
        """Encode ``B x S`` tokens, padded on either side, to the fields of :class:`~..nn.state.Encoded`.

        Raises:
            ValueError: a source is longer than ``--max-source-positions``.
        """
        longest = src_tokens.size(1)
        if longest > self.max_source_positions:  # with its padding
            longest = int(src_tokens.ne(self.dictionary.pad()).sum(1).max())
        if longest > self.max_source_positions:
            raise ValueError(
                f"a source of {longest} tokens is longer than --max-source-positions "
                f"{self.max_source_positions}; fairseq-generate leaves such lines out with "
                "--skip-invalid-size-inputs-valid-test"
            )
        embedded = self.dropout_in(self.embed_tokens(src_tokens))
        word_ends = None
        if self.space is not None:
            word_ends = src_tokens.eq(self.space) | src_tokens.eq(self.dictionary.eos())
        encoded: Encoded = self.layers(embedded, src_tokens.eq(self.dictionary.pad()), word_ends)
        encoded = encoded._replace(annotations=self.dropout_out(encoded.annotations))
        if encoded.upper_annotations is not None:
            encoded = encoded._replace(upper_annotations=self.dropout_out(encoded.upper_annotations))
        return {name: [] if value is None else [value] for name, value in encoded._asdict().items()}

    def reorder_encoder_out(self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor) -> Dict[str, List[Tensor]]:
        """Select rows ``new_order`` of what :meth:`forward` returned.

        Beam search asks at every step; so only their numbers are kept, as ``rows``.
        """
        rows = encoder_out.get("rows")
        return {**encoder_out, "rows": [rows[0].index_select(0, new_order) if rows else new_order]}

    def max_positions(self) -> int:
        """The longest source."""
        return self.max_source_positions

    def upgrade_state_dict_named(self, state_dict, name):
        """Refuse a checkpoint of another dictionary."""
        check_fingerprint(self, state_dict, name, "source")
        return state_dict


class IncrementalDecoder(FairseqIncrementalDecoder):
    """Embeds previous target tokens, decodes them and projects to the vocabulary."""

    STATE = "state"

    def __init__(self, dictionary, embed_tokens: nn.Embedding, decoder: Decoder, bridge: Optional[DirectBridge], cfg):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.layers = decoder
        self.bridge = bridge
        self.dropout_in = FairseqDropout(cfg.decoder_dropout_in, module_name="decoder_dropout_in")
        self.dropout_out = FairseqDropout(cfg.decoder_dropout_out, module_name="decoder_dropout_out")
        self.max_target_positions = cfg.max_target_positions
        self.output_projection = nn.Linear(cfg.decoder_out_embed_dim, len(dictionary))
        nn.init.zeros_(self.output_projection.bias)
        if cfg.share_decoder_input_output_embed or cfg.share_all_embeddings:
            self.output_projection.weight = embed_tokens.weight
        else:
            matrix_(self.output_projection.weight)
        self.register_buffer(FINGERPRINT, fingerprint(dictionary))

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Dict[str, List[Tensor]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        features_only: bool = False,
        with_cost_terms: bool = False,
        **kwargs,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Logits ``B x T x V`` (one step with ``incremental_state``) and ``{"attn": [B x T x S]}``.

        Attention via attention also returns ``word_attn``, the higher level's weights, ``B x T x W``.
        With ``with_cost_terms`` also, where the model has them, ``conditions``, CondDec's ``sd_0 .. sd_T``, ``B x
        (T+1) x 2n``, and ``bridged``, the mapped source embeddings ``W x_{t*}``, ``B x T x m``.
        """
        if incremental_state is None:
            memory, state = self._start(encoder_out)
        else:
            prev_output_tokens = prev_output_tokens[:, -1:]
            memory, state = self._resume(incremental_state, encoder_out)
        decoded = self.layers(self.dropout_in(self.embed_tokens(prev_output_tokens)), memory, state)
        if incremental_state is not None:
            self._keep(incremental_state, memory, decoded.state)
        features = self.dropout_out(decoded.features)
        extra: Dict[str, List[Optional[Tensor]]] = {"attn": [decoded.weights]}
        if decoded.upper_weights is not None:
            extra["word_attn"] = [decoded.upper_weights]
        if with_cost_terms and decoded.conditions is not None:
            extra["conditions"] = [decoded.conditions]
        if with_cost_terms and self.bridge is not None:
            encoded, rows = _encoded(encoder_out)
            encoded = encoded if rows is None else reorder(encoded, rows)
            extra["bridged"] = [self.bridge(encoded.embeddings, decoded.weights, encoded.padding_mask)]
        elif self.training and self.bridge is not None:
            # several processes wait for the gradient of every parameter
            features = features + 0.0 * self.bridge.projection.weight.sum()
        if self.training and decoded.state.query is not None:
            features = features + 0.0 * decoded.state.query.sum()  # a single step makes it and does not read it
        return (features if features_only else self.output_layer(features)), extra

    def extract_features(self, prev_output_tokens, encoder_out=None, **kwargs):
        """As :meth:`forward`, but the readout's features instead of logits."""
        return self.forward(prev_output_tokens, encoder_out, features_only=True, **kwargs)

    def output_layer(self, features: Tensor, **kwargs) -> Tensor:
        """Project ``B x T x k`` to the vocabulary."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state, new_order: Tensor) -> None:
        """Select rows ``new_order`` of the memory and of the state."""
        if self.get_incremental_state(incremental_state, self.STATE) is not None:
            memory, state = self._resume(incremental_state, {})
            hypotheses = len(state.hidden) // len(memory.keys)
            self._keep(incremental_state, serve(memory, hypotheses, new_order), reorder(state, new_order))

    def max_positions(self) -> int:
        """The longest target."""
        return self.max_target_positions

    def upgrade_state_dict_named(self, state_dict, name):
        """Refuse a checkpoint of another dictionary."""
        check_fingerprint(self, state_dict, name, "target")
        return state_dict

    def _start(self, encoder_out: Dict[str, List[Tensor]], search: bool = False) -> Tuple[Memory, State]:
        encoded, rows = _encoded(encoder_out)
        memory, state = self.layers.start(encoded, search and rows is not None and len(rows) > len(encoded.final))
        return (memory, state) if rows is None else (serve(memory, 1, rows), reorder(state, rows))

    def _resume(self, incremental_state, encoder_out) -> Tuple[Memory, State]:
        kept = self.get_incremental_state(incremental_state, self.STATE)
        return self._start(encoder_out, search=True) if kept is None else (kept["memory"], kept["state"])

    def _keep(self, incremental_state, memory: Memory, state: State) -> None:
        self.set_incremental_state(incremental_state, self.STATE, {"memory": memory, "state": state})


def _encoded(encoder_out: Dict[str, List[Tensor]]) -> Tuple[Encoded, Optional[Tensor]]:
    """The encoder's output, and which of its rows are asked for if not all in their order."""
    entries = {name: values[0] for name, values in encoder_out.items() if values}
    rows = entries.pop("rows", None)
    return Encoded(**entries), rows


def embedding(dictionary, width: Optional[int], path: Optional[str], freeze: bool, flag: str) -> nn.Embedding:
    """An embedding matrix, N(0, 0.01²) or read from a file, whose padding row is zero.

    Raises:
        ConfigurationError: the file's vectors have another width; ``flag`` names the option.
    """
    assert width is not None
    layer = nn.Embedding(len(dictionary), width, dictionary.pad())
    embedding_(layer.weight)
    nn.init.zeros_(layer.weight[dictionary.pad()])
    if path:
        vectors = utils.parse_embedding(path)
        found = {vector.numel() for vector in vectors.values()}
        if found != {width}:
            raise ConfigurationError(f"{flag} {path} has vectors of width {sorted(found)}, but the model's is {width}")
        utils.load_embedding(vectors, dictionary, layer)
    layer.weight.requires_grad_(not freeze)
    return layer


def complete(cfg) -> None:
    """Add the options that the version of this package that saved ``cfg`` did not have yet, at their defaults."""
    with open_dict(cfg) if OmegaConf.is_config(cfg) else contextlib.nullcontext():
        for option in dataclasses.fields(AttentionRNNConfig):
            if not hasattr(cfg, option.name):
                setattr(cfg, option.name, option.default)


def fast_bfloat16() -> bool:
    """Whether bfloat16 products are quick here: on CUDA, or on a CPU that says so (or cannot say)."""
    if torch.cuda.is_available():
        return True
    asks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() if ask else True for ask in asks)


def _register(name: str) -> None:
    def architecture(cfg) -> None:
        fill(cfg, name)

    architecture.__doc__ = VARIANTS[name].paper
    register_model_architecture("attention_rnn", name)(architecture)


for _name in VARIANTS:
    _register(_name)
