"""The fairseq model: it connects tokens and dictionaries to the networks of :mod:`..nn`."""

import contextlib
import json
import logging
from typing import Any, NamedTuple, Optional

import torch
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
    register_model_architecture,
)
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from ..architectures.build import build_bridge, build_decoder, build_encoder
from ..architectures.options import AttentionRNNConfig, complete, tied
from ..architectures.part_args import part_arguments
from ..architectures.refusals import check, check_compiler, check_data, check_number_type, check_task, unread
from ..architectures.variants import BASE, VARIANTS, fill
from ..arithmetic.choice import SearchDtype, TrainingDtype, match_choice
from ..arithmetic.reduced import reduced_products
from ..nn.bridging import DirectBridge
from ..nn.decoder import Decoded, Decoder
from ..nn.encoder import HierarchicalEncoder
from ..nn.fast.graphs import Graphs, graphs_for
from ..nn.fast.projected import for_hypotheses
from ..nn.init import Scheme, initialise
from ..nn.readout import Prediction, Readout, Steps
from ..nn.state import Encoded, Memory, State, grouped, reorder, serve, tensors
from ..registry import ConfigurationError
from .allocation import keep_memory
from .embeddings import load_embeddings
from .fingerprint import FINGERPRINT, check_fingerprints, fingerprint
from .hub import Pretrained
from .renamed import rename
from .warm_start import WarmStart, warm_start

logger = logging.getLogger(__name__)

LEAST_COVERED = 0.01  # the least coverage of a token, so that the first words of a hypothesis have a finite penalty


@register_model("attention_rnn", dataclass=AttentionRNNConfig)
class AttentionRNNModel(Pretrained, FairseqEncoderDecoderModel):
    """An attentional recurrent encoder-decoder that its configuration describes.

    ``forward(src_tokens, src_lengths, prev_output_tokens)`` returns logits ``B x T x V`` and a dictionary with
    ``attn``, a list of one ``B x T x S`` float32 tensor in the columns of ``src_tokens``.
    """

    def __init__(self, cfg: AttentionRNNConfig, encoder: "Encoder", decoder: "IncrementalDecoder"):
        super().__init__(encoder, decoder)
        self.cfg = cfg
        self.started = False
        """whether training has begun, and its warnings are in the log"""
        self.compute_dtype = TrainingDtype(str(cfg.compute_dtype))
        self.compute_dtype.register(self)
        self.warm_started: WarmStart | None = None
        self.refusal = ""
        """why training cannot start: a file of embeddings or a warm start's checkpoint is missing or does not fit"""

    @classmethod
    def build_model(cls, cfg: AttentionRNNConfig, task) -> "AttentionRNNModel":
        """Build a model from a configuration.

        Options that are still None take the values of the architecture ``cfg._name``, or of rnnsearch if there is no
        such architecture.

        Raises:
            ConfigurationError: options that are unknown or do not fit together.
        """
        complete(cfg)
        name = str(getattr(cfg, "_name", None))
        fill(cfg, name if name in VARIANTS else BASE)
        check(cfg)
        chosen = part_arguments(cfg)
        cfg.part_args = json.dumps(chosen) if chosen else None  # the defaults, too
        check_data(cfg, task)
        source, target = task.source_dictionary, task.target_dictionary
        copies = symbols_copied(source, target) if cfg.copying else None
        assert cfg.encoder_embed_dim and cfg.decoder_embed_dim and cfg.init_std and cfg.gate_bias is not None  # filled
        source_embedding = embedding(source, cfg.encoder_embed_dim)
        target_embedding = source_embedding if cfg.share_all_embeddings else embedding(target, cfg.decoder_embed_dim)
        # a number if the source is a StringDictionary with features
        first_feature = getattr(source, "first_feature", None) if cfg.features == "attended" else None
        decoder = build_decoder(cfg, copies, features=first_feature is not None)
        model = cls(
            cfg,
            Encoder(source, source_embedding, cfg, first_feature),
            IncrementalDecoder(target, target_embedding, decoder, build_bridge(cfg), cfg),
        )
        initialise(model, Scheme(cfg.init == "uniform", cfg.init_std, cfg.gate_bias))
        model.refusal = load_embeddings(source_embedding, source, "encoder", cfg)
        if not cfg.share_all_embeddings:
            model.refusal = load_embeddings(target_embedding, target, "decoder", cfg) or model.refusal
        if cfg.warm_start:
            try:
                model.warm_started = warm_start(model, cfg.warm_start)
            except Exception as error:
                model.refusal = f"--warm-start {cfg.warm_start}: {error}"
        return model

    def upgrade_state_dict_named(self, state_dict, name):
        """Give this model's checkpoint the present names, and let it replace a warm start and files of embeddings."""
        self.warm_started, self.refusal = None, ""
        prefix = f"{name}." if name else ""
        rename(self, state_dict, prefix)
        match_choice(self, state_dict, prefix)
        check_fingerprints(self, state_dict, prefix)
        super().upgrade_state_dict_named(state_dict, name)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        with_cost_terms: bool = False,
        **kwargs,
    ):
        """Return logits and attention for known target prefixes ``B x T``.

        With ``with_cost_terms`` the dictionary also has the entries in :attr:`cost_terms`, for the criterions.
        """
        if self.training:
            self.before_training(src_tokens.device, with_cost_terms)
        with self.autocast(src_tokens.device):
            encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, **kwargs)
            logits, extra = self.decoder(prev_output_tokens, encoder_out=encoder_out, **kwargs)
            if self.decoder.bridge is not None and with_cost_terms:
                # embeddings without dropout, because they are compared with e(y) (Kuang et al. 2018 eq. 3)
                embedded, padding = self.encoder.embed_tokens(src_tokens), src_tokens.eq(self.encoder.dictionary.pad())
                extra["bridged"] = [self.decoder.bridge(embedded, extra["attn"][0], padding)]
            elif self.decoder.bridge is not None and self.training:
                logits = with_gradient(logits, self.decoder.bridge.projection.weight)
        if not with_cost_terms:
            extra.pop("conditions", None)
        return logits, extra

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None):
        """Return the probabilities of the next words, or their logarithms plus the step's coverage penalty, if any.

        fairseq's search sums these up over a hypothesis, and then divides by its length.
        """
        probabilities = super().get_normalized_probs(net_output, log_probs, sample)
        penalty = (net_output[1] or {}).get("coverage_penalty")
        return probabilities + penalty[0].unsqueeze(1) if log_probs and penalty else probabilities

    @property
    def cost_terms(self) -> list[str]:
        """The keys of the output's entries that only losses read."""
        has = {"conditions": self.cfg.decoder_condition, "bridged": self.decoder.bridge is not None}
        return [term for term, there in has.items() if there]

    def before_training(self, device: torch.device, with_cost_terms: bool) -> None:
        """Refuse a model that cannot be trained, and set up its computation; called before training and each batch.

        Raises:
            ConfigurationError: --compile without a compiler, --compute-dtype with parameters that are not float32, a
                file of embeddings that is missing or does not fit, or a warm start that failed.
        """
        if self.refusal:
            raise ConfigurationError(self.refusal)
        if self.compute_dtype.asked != "float32" and self.decoder.output_projection.weight.dtype != torch.float32:
            raise ConfigurationError(
                f"--compute-dtype {self.compute_dtype.asked} keeps float32 parameters and does not go with --fp16 or "
                "--bf16: leave one of them out"
            )
        if device.type == "cpu":
            keep_memory()
        self.compute_dtype.decide(self)
        if self.cfg.compile and not self.decoder.network.compiled:
            check_compiler(device)
            self.decoder.network.compile_step()
        if self.started:
            return
        self.started = True
        if self.warm_started is not None:
            logger.info(self.warm_started)
        if self.cfg.cuda_graphs:
            self.decoder.graphs = graphs_for(self.decoder.network, device)
        if self.cost_terms and not with_cost_terms:
            logger.warning(
                "this model is being trained without the losses that its paper adds; "
                "--criterion label_smoothed_cross_entropy_with_costs adds them"
            )
        with_features = getattr(self.encoder.dictionary, "first_feature", None) is not None
        for sentence in unread(self.cfg, with_features):
            logger.warning(sentence)

    def autocast(self, device: torch.device):
        """Return a context in which matrix products are in bfloat16, if training computes in that type."""
        if self.training and self.compute_dtype.dtype == "bfloat16":
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


class WordDropout(FairseqDropout):
    """Drops whole embeddings (Sennrich and Zhang 2019)."""

    def forward(self, embedded: Tensor) -> Tensor:
        """Return ``B x T x m`` times one factor per word, 0 or 1 / (1 - p)."""
        return embedded * super().forward(embedded.new_ones(*embedded.shape[:-1], 1)) if self.p else embedded


class Encoder(FairseqEncoder):
    """Embeds source tokens and encodes them.

    Tokens from ``first_feature`` on are features: a set of embeddings.  The network treats them as padding.
    """

    def __init__(self, dictionary, embed_tokens: nn.Embedding, cfg, first_feature: int | None = None):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.first_feature = first_feature
        self.dropout_words = WordDropout(cfg.encoder_dropout_words, module_name="encoder_dropout_words")
        self.dropout_in = FairseqDropout(cfg.encoder_dropout_in, module_name="encoder_dropout_in")
        dropout = FairseqDropout(cfg.encoder_dropout_out, module_name="encoder_dropout_out")
        self.network = build_encoder(cfg, dropout)
        self.max_source_positions = cfg.max_source_positions
        self.space = dictionary.space() if isinstance(self.network, HierarchicalEncoder) else None
        self.register_buffer(FINGERPRINT, fingerprint(dictionary))

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **kwargs) -> dict[str, list[Tensor]]:
        """Encode ``B x S`` tokens, padded on either side, to the fields of :class:`~..nn.state.Encoded`.

        Raises:
            ValueError: a source is longer than ``--max-source-positions``.
        """
        longest, padding_mask = src_tokens.size(1), src_tokens.eq(self.dictionary.pad())
        if longest > self.max_source_positions:  # with padding
            longest = int((~padding_mask).sum(1).max())
        if longest > self.max_source_positions:
            raise ValueError(
                f"a source of {longest} tokens is longer than --max-source-positions "
                f"{self.max_source_positions}; fairseq-generate leaves such lines out with "
                "--skip-invalid-size-inputs-valid-test"
            )
        embeddings = self.dropout_in(self.dropout_words(self.embed_tokens(src_tokens)))
        tags: Tensor | None = None
        not_tags: Tensor | None = None
        if self.first_feature is not None:
            not_tags = src_tokens < self.first_feature
            tags = embeddings.masked_fill(not_tags.unsqueeze(-1), 0)
            padding_mask = padding_mask | ~not_tags
        embedded = embeddings.masked_fill(padding_mask.unsqueeze(-1), 0)
        more = []
        if self.space is not None:  # words end at spaces and at EOS
            more.append(src_tokens.eq(self.space) | src_tokens.eq(self.dictionary.eos()))
        encoded: Encoded = self.network(embedded, padding_mask, *more)
        encoded = encoded._replace(tokens=src_tokens, tags=tags, not_tags=not_tags)
        return {name: [] if value is None else [value] for name, value in encoded._asdict().items()}

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Select rows ``new_order`` of the output of :meth:`forward`.

        Beam search calls this at every step, so the output only gets the numbers of the rows, as ``rows``.
        """
        rows = encoder_out.get("rows")
        return {**encoder_out, "rows": [rows[0].index_select(0, new_order) if rows else new_order]}

    def max_positions(self) -> int:
        """The longest source."""
        return self.max_source_positions


class IncrementalDecoder(FairseqIncrementalDecoder):
    """Embeds previous target tokens, decodes them and projects to the vocabulary."""

    def __init__(self, dictionary, embed_tokens: nn.Embedding, decoder: Decoder, bridge: DirectBridge | None, cfg):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.network = decoder
        self.bridge = bridge
        self.dropout_words = WordDropout(cfg.decoder_dropout_words, module_name="decoder_dropout_words")
        self.dropout_in = FairseqDropout(cfg.decoder_dropout_in, module_name="decoder_dropout_in")
        self.dropout_out = FairseqDropout(cfg.decoder_dropout_out, module_name="decoder_dropout_out")
        self.max_target_positions = cfg.max_target_positions
        self.output_projection = nn.Linear(cfg.decoder_out_embed_dim, len(dictionary))
        if tied(cfg):
            self.output_projection.weight = embed_tokens.weight
        self.search_dtype = SearchDtype(str(cfg.search_dtype))
        self.coverage_penalty = cfg.coverage_penalty
        self.zero_start = bool(cfg.zero_start)
        self.projects_annotations = True
        """whether search projects annotations instead of contexts, where possible"""
        self.graphs: Graphs | None = None
        """the CUDA graphs that run the network in training, with --cuda-graphs"""
        self.register_buffer(FINGERPRINT, fingerprint(dictionary))

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        features_only: bool = False,
        **kwargs,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Return logits ``B x T x V`` (one step with ``incremental_state``) and ``{"attn": [B x T x S]}``.

        Some models have further entries.  With attention via attention, ``word_attn`` has the upper level's weights,
        ``B x T x W``.  With several heads, ``head_attn`` has their weights, ``B x T x h x S``; ``attn`` is their mean.
        With CondDec, ``conditions`` has ``sd_0 .. sd_T``, ``B x (T+1) x 2n``.  In a search with a coverage penalty,
        ``coverage_penalty`` has the step's share of the penalty, ``N x 1``.  Inputs of losses, from attention and the
        readout, have the names that these components give them.
        """
        search = incremental_state is not None
        if search:
            prev_output_tokens = prev_output_tokens[:, -1:]
            self.search_dtype.decide(self.network, self.output_projection)  # only the first call decides
        reduced = search and self.search_dtype.dtype == "bfloat16"
        with reduced_products() if reduced else contextlib.nullcontext():
            run = self.kept(incremental_state) or self.start(encoder_out, search)
            decode: Any = run.network if search or self.graphs is None else self.graphs
            decoded = decode(self.embed(prev_output_tokens), run.memory, run.state)
            if features_only:
                predicted = Prediction(self.dropout_out(decoded.features), carried=run.state.readout)
            else:
                predicted = self._predict(run, decoded, prev_output_tokens)
            output = predicted.output
            weights = decoded.weights if predicted.weights is None else predicted.weights
            run, penalty = run._replace(state=decoded.state._replace(readout=predicted.carried)), None
            if search and self.coverage_penalty:
                penalty, run = run.penalised(weights[:, -1], self.coverage_penalty)
            if search:
                self.keep(incremental_state, run)
            terms = {**decoded.terms, **predicted.terms}
            if self.training:
                unused = tensors(terms)  # some losses do not read them
                if prev_output_tokens.size(1) == 1:  # a single step makes these and does not read them
                    unused += tensors((run.state.query, run.state.histories, run.state.readout))
                for made in unused:
                    output = with_gradient(output, made)
        entries = {
            "attn": weights,
            "word_attn": decoded.upper_weights,
            "head_attn": decoded.head_weights,
            "conditions": decoded.conditions,
            "coverage_penalty": penalty,
        }
        if taken := sorted(decoded.terms.keys() & predicted.terms.keys() | {*entries, "bridged"} & terms.keys()):
            raise ConfigurationError(
                f"a component's term {taken[0]!r} has the name of something else in the model's output"
            )
        extra: dict[str, list[Tensor | None]] = {
            name: [value] for name, value in {**entries, **terms}.items() if value is not None
        }
        return output, extra

    def embed(self, previous: Tensor) -> Tensor:
        """Embed previous words ``B x T`` for the network, ``B x T x m``."""
        embedded: Tensor = self.dropout_in(self.dropout_words(self.embed_tokens(previous)))
        if not self.zero_start:
            return embedded
        return embedded.masked_fill(previous.eq(self.dictionary.eos()).unsqueeze(2), 0)  # EOS begins every sentence

    def extract_features(self, prev_output_tokens, encoder_out=None, **kwargs):
        """Return the readout's features instead of the logits of :meth:`forward`."""
        return self.forward(prev_output_tokens, encoder_out, features_only=True, **kwargs)

    def output_layer(self, features: Tensor, **kwargs) -> Tensor:
        """Project ``B x T x k`` to the vocabulary.

        Raises:
            ValueError: the readout predicts from more than features, as with copying.
        """
        readout = self.network.readout
        if type(readout).predict is not Readout.predict:
            raise ValueError(f"the readout {type(readout).__name__} predicts from more than features: call the decoder")
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state, new_order: Tensor) -> None:
        """Select rows ``new_order`` of the state, and let the memory serve these rows."""
        run = self.kept(incremental_state)
        if run is not None:
            hypotheses = len(run.state.hidden) // len(run.memory.keys)
            memory = serve(run.memory, hypotheses, new_order)
            self.keep(incremental_state, run.reordered(new_order)._replace(memory=memory))

    def max_positions(self) -> int:
        """The longest target."""
        return self.max_target_positions

    def start(self, encoder_out: dict[str, list[Tensor]], search: bool) -> "Run":
        """Return the run before its first step; in a ``search`` several hypotheses may share a sentence."""
        entries = {name: values[0] for name, values in encoder_out.items() if values}
        rows = entries.pop("rows", None)  # the selected rows; None for all, in their order
        encoded, network = Encoded(**entries), self.network
        memory, state = network.start(encoded)
        if search and self.projects_annotations and rows is not None and len(rows) > len(encoded.final):
            network, memory, state = for_hypotheses(network, memory, state, self.embed_tokens.embedding_dim)
        if rows is not None:
            memory, state = serve(memory, 1, rows), reorder(state, rows)
        return Run(network, memory, state)

    def kept(self, incremental_state) -> Optional["Run"]:
        """Return the run that :meth:`keep` kept; None before the first step of a search."""
        return self.get_incremental_state(incremental_state, "run")

    def keep(self, incremental_state, run: "Run") -> None:
        """Keep the run for the next step of a search."""
        self.set_incremental_state(incremental_state, "run", run)

    def _predict(self, run: "Run", decoded: Decoded, previous: Tensor) -> Prediction:
        def project(features: Tensor) -> Tensor:
            return self.output_projection(self.dropout_out(features))

        steps = Steps(previous, decoded.weights, run.memory, run.state.readout, len(self.dictionary))
        return run.network.readout.predict(decoded.features, project, steps)


class Run(NamedTuple):
    """A network that decodes some sentences, with their memory and state."""

    network: Decoder
    memory: Memory
    state: State
    covered: Tensor | None = None
    """``Σ_{t≤i} w_tj`` of each source token, ``N x S``, float32; for the coverage penalty."""

    def reordered(self, order: Tensor) -> "Run":
        """Return the run with its carried state reordered by ``order``."""
        state, covered = reorder((self.state, self.covered), order)
        return self._replace(state=state, covered=covered)

    def penalised(self, weights: Tensor, strength: float) -> tuple[Tensor, "Run"]:
        """Return the step's coverage penalty, ``N x 1``, from its weights ``N x S``, and the run after it."""
        # copy the first weights, because fairseq's ensembles add to the returned weights in place
        covered = weights.clone() if self.covered is None else self.covered + weights
        penalty = coverage_penalty(covered, self.memory)
        if self.covered is not None:
            penalty = penalty - coverage_penalty(self.covered, self.memory)
        return strength * penalty.unsqueeze(1), self._replace(covered=covered)


def coverage_penalty(covered: Tensor, memory: Memory) -> Tensor:
    """``Σ_j log min(Σ_i w_ij, 1)`` over a source's real tokens (Wu et al. 2016, equation 14), ``N``.

    Args:
        covered: ``Σ_i w_ij``, ``N x S``; values below :data:`LEAST_COVERED` count as :data:`LEAST_COVERED`.
        memory: the sentences' memory, which has their padding.
    """
    padding = memory.padding_mask if memory.shares is None else memory.shares.sum(1).eq(0)  # B x S
    logs = grouped(covered, padding).clamp(LEAST_COVERED, 1.0).log()  # B x k x S
    return logs.masked_fill(padding.unsqueeze(1), 0).sum(2).flatten()


def with_gradient(value: Tensor, unused: Tensor) -> Tensor:
    """Return ``value``, with a gradient of zero for ``unused``, on which it does not depend.

    Training in several processes waits for the gradient of every parameter.
    """
    return value + torch.where(torch.ones_like(unused, dtype=torch.bool), 0.0, unused).sum().to(value.dtype)


def symbols_copied(source, target) -> Tensor:
    """Return the target symbol that a copy of each source symbol becomes: the same symbol, or else ``<unk>``."""
    numbers = [target.index(symbol) for symbol in source.symbols]
    words = numbers[source.nspecial :]
    there = len(words) - words.count(target.unk())
    logger.info(f"--copying: {there} of {len(words)} source words are in the target dictionary; others become <unk>")
    return torch.tensor(numbers)


def embedding(dictionary, width: int) -> nn.Embedding:
    """Return an embedding layer with a row for each symbol; the row of padding is zero."""
    return nn.Embedding(len(dictionary), width, dictionary.pad())


def _register(name: str) -> None:
    if name in ARCH_MODEL_REGISTRY:
        raise ConfigurationError(f"architecture {name!r}: fairseq has another of this name: choose another")

    def architecture(cfg) -> None:
        check_task(getattr(cfg, "task", None))
        check_number_type(cfg)
        fill(cfg, name)

    architecture.__doc__ = VARIANTS[name].paper or name
    register_model_architecture("attention_rnn", name)(architecture)


VARIANTS.follow(_register)
