"""The decoder: a loop of steps, with all other work before and after the loop.

Shapes as in :mod:`.state`; ``F`` is the width of the readout's features.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .copying import Copying
from .dropout import drop_hidden
from .fast.deferred import deferred
from .layer_norm import at_least_float32, layer_norm
from .layers import Layers
from .readout import Readout
from .state import Encoded, Memory, State, by_steps, grouped
from .transition import Transition, Words

AnyReadout = Readout | Copying
CHUNK = 32  # steps that are projected and read out at once: enough to be quick, but fewer than a text of characters has


class Decoded(NamedTuple):
    """The result of a run over ``T`` steps."""

    features: Tensor
    """inputs of the vocabulary layer, ``N x T x F``."""
    weights: Tensor
    """attention ``w_tj``, ``N x T x S``, float32."""
    upper_weights: Tensor | None
    """weights of the upper level, if there is one, ``N x T x W``, or of its tokens ``N x T x S``, float32."""
    head_weights: Tensor | None
    """weights of each of ``h`` heads, if there are several, ``N x T x h x S``, float32."""
    conditions: Tensor | None
    """CondDec's ``sd_0 .. sd_T``, ``N x (T+1) x 2n``."""
    terms: dict[str, Tensor]
    """inputs of a loss, by name, ``N x T x ...``."""
    state: State
    """the state after the last step."""


class InitialState(nn.Module):
    """``h_0`` from the source, by one affine map and tanh.

    ``first`` maps the backward state at the first word (Bahdanau et al. 2015).  If the top layer has no backward
    direction, it maps the forward state at the last word.  ``linear`` is ``first`` without tanh (in the code of Zhao
    and Zhang 2018).  ``mean`` maps the mean of the real annotations (dl4mt).

    Args:
        source: ``first``, ``linear`` or ``mean``.
        source_dim: width of the map's input.
        state_dim: width of the state.
        copies: number of layers that start from it.
        norm: layer normalisation after the affine map.
    """

    def __init__(self, source: str, source_dim: int, state_dim: int, copies: int = 1, norm: bool = False):
        super().__init__()
        self.source = source
        self.copies = copies
        self.projection = nn.Linear(source_dim, state_dim)
        self.norm = layer_norm(norm, state_dim)

    def forward(self, encoded: Encoded) -> Tensor:
        """``B x (copies · state_dim)``."""
        state = self.norm(self.projection(self.summary(encoded))).to(encoded.final.dtype)
        return (state if self.source == "linear" else torch.tanh(state)).repeat(1, self.copies)

    def summary(self, encoded: Encoded) -> Tensor:
        """The input of the map to ``h_0``, ``B x source_dim``."""
        if self.source != "mean":
            return encoded.final[:, -self.projection.in_features :]
        annotations, padding_mask = encoded.annotations, encoded.padding_mask
        if encoded.upper_annotations is not None and encoded.upper_padding_mask is not None:
            annotations, padding_mask = encoded.upper_annotations, encoded.upper_padding_mask
        lengths = (~padding_mask).sum(1, keepdim=True).clamp(min=1)
        return annotations.sum(1) / lengths.to(annotations.dtype)


class ZeroState(nn.Module):
    """``h_0 = 0``.

    Args:
        state_dim: width of the state.
        copies: number of layers that start from it.
    """

    def __init__(self, state_dim: int, copies: int = 1):
        super().__init__()
        self.width = copies * state_dim

    def forward(self, encoded: Encoded) -> Tensor:
        """``B x (copies · state_dim)``."""
        return encoded.final.new_zeros(encoded.final.size(0), self.width)


class InitialStates(nn.ModuleList):
    """``h_0`` of each layer, by separate weights."""

    def forward(self, encoded: Encoded) -> Tensor:
        """``B x (layers · state_dim)``."""
        return torch.cat([initial(encoded) for initial in self], dim=1)


class Decoder(nn.Module):
    """An attentional decoder composed of components.

    Args:
        transition: the step.
        initial: makes ``h_0`` of all layers.
        readout: makes the features.
        initial_query: makes ``q_0`` (RNNAtt), with separate weights.
        above: layers above the transition.  They feed nothing back to it, so they run over all steps at once.  They may
            also read contexts (Wu et al. 2016).
        recompute_steps: keep only the state of every n-th step for the backward pass, and compute the states between
            them again; 0 keeps all.
        hidden_dropout: share of states that :func:`~.dropout.drop_hidden` drops, in all cells.
        reads_all_layers: the readout reads all layers of the transition, not only the highest one.
    """

    def __init__(
        self,
        transition: Transition,
        initial: InitialState | InitialStates | ZeroState,
        readout: AnyReadout,
        initial_query: InitialState | ZeroState | None = None,
        above: Layers | None = None,
        recompute_steps: int = 0,
        hidden_dropout: float = 0.0,
        reads_all_layers: bool = False,
    ):
        super().__init__()
        self.transition = transition
        self.initial = initial
        self.readout = readout
        self.initial_query = initial_query
        self.above = above
        self.recompute_steps = recompute_steps
        self.hidden_dropout = hidden_dropout
        self.reads_all_layers = reads_all_layers
        self.compiled = False
        self.compiler: dict[str, Any] = {}
        """options of ``torch.compile``"""

    def compile_step(self, **compiler: Any) -> None:
        """Compile a step by ``torch.compile`` with these options, for sentences of any length."""
        self.compiled, self.compiler = True, compiler
        self.transition.compile(dynamic=True, **compiler)

    def start(self, encoded: Encoded) -> tuple[Memory, State]:
        """Return the memory of sentences, which several hypotheses may share, and the state before the first step."""
        memory = self.transition.attention.memory(encoded)
        memory = memory._replace(shares=encoded.shares, readout=self.readout.remember(encoded))
        if self.transition.features is not None:
            tags: Any = encoded.tags
            described = encoded._replace(annotations=tags, padding_mask=encoded.not_tags)  # type: ignore[arg-type]
            memory = memory._replace(tags=self.transition.features.memory(described))
        hidden, above = self.initial(encoded).tensor_split([self.transition.last.state_dim], dim=1)
        upper = encoded.upper_annotations
        width = encoded.annotations.size(2) + (0 if upper is None else upper.size(2))
        weights = at_least_float32(hidden.new_zeros(memory.padding_mask.shape))
        state = State(
            hidden=hidden,
            context=hidden.new_zeros(hidden.size(0), width),
            weights=weights,
            step=weights.new_zeros(hidden.size(0)),
            query=None if self.initial_query is None else self.initial_query(encoded),
            condition=None if self.transition.condition is None else encoded.final,
            upper_weights=None if upper is None else weights.new_zeros(upper.shape[:2]),
            above=None if self.above is None else above.unflatten(1, (len(self.above.layers), -1)),
            histories=self.transition.attention.start(memory),
            readout=self.readout.start(memory),
        )
        return memory, state

    def forward(self, target: Tensor, memory: Memory, state: State) -> Decoded:
        """Run over ``T`` known previous words.

        Args:
            target: embeddings ``y_0 .. y_{T-1}``, ``N x T x m``.
            memory, state: from :meth:`start`, or the state after an earlier run.
        """
        if target.size(1) == 1 and not self.training:  # a step of a search
            decoded = self.steps(self.transition, target, memory, state)
        else:
            decoded = self.chunks(target, memory, state)
        if decoded.conditions is None or state.condition is None:
            return decoded
        return decoded._replace(conditions=torch.cat([state.condition.unsqueeze(1), decoded.conditions], dim=1))

    def chunks(self, target: Tensor, memory: Memory, state: State) -> Decoded:
        """Run :meth:`steps` for a few steps at a time, with training's dropout, recomputation and compiler."""
        decoder = drop_hidden(self, target, self.hidden_dropout)
        if self.compiled and decoder is not self:
            decoder.compile_step(**self.compiler)  # this copy uses the code that was compiled for earlier copies

        def run(*chunk: Any) -> Decoded:
            own = decoder.transition
            decoded: Decoded = decoder.steps(own if decoder.compiled else deferred(own), *chunk)
            return decoded

        size = CHUNK
        if self.recompute_steps and torch.is_grad_enabled():
            run, size = partial(checkpoint, run, use_reentrant=False), self.recompute_steps
        chunks: list[Decoded] = []
        for chunk in target.split(size, dim=1):
            chunks.append(run(chunk, memory, chunks[-1].state if chunks else state))
        *made, states = zip(*chunks)
        return Decoded._make([*map(_joined, made), states[-1]])

    def steps(self, transition: Any, target: Tensor, memory: Memory, state: State) -> Decoded:
        """Run all steps by one transition, as :meth:`forward` does; the conditions exclude ``sd_0``."""
        if target.size(1) > 1 and self.transition.independent:
            outputs, made, state = transition.at_once(target, memory, state)
        else:
            made, state = self.stepped(transition, target, memory, state)
            last = self.transition.last
            outputs = last.outputs(made.hidden) if self.reads_all_layers else [last.output(made.hidden)]
        hidden = torch.cat(outputs, dim=-1) if self.reads_all_layers else outputs[-1]  # N x T x n or N x T x layers·n
        contexts = made.context
        if self.above is not None:
            context = by_steps(contexts) if self.above.context_dim else None
            sizes = [hidden.size(0)] * hidden.size(1)
            start: Any = state.above
            rows, above = self.above(by_steps(hidden), sizes, start.transpose(0, 1), context)
            hidden = rows.unflatten(0, (len(sizes), -1)).transpose(0, 1)
            state = state._replace(above=above.transpose(0, 1))
        features = self.readout(hidden, target, contexts)  # N x T x F
        every = made.weights, made.upper_weights, made.head_weights
        weights, upper, heads = (of_tokens(weights, memory) for weights in every)
        return Decoded(features, weights, upper, heads, made.condition, made.terms, state)

    def stepped(self, transition: Any, target: Tensor, memory: Memory, state: State) -> tuple[State, State]:
        """Run the steps one after the other; return their states, in tensors ``N x T x ...``, and the last state."""
        projected = self.transition.project(target)
        unbind = torch.unbind_copy if self.compiled else torch.unbind  # compiled code would fix a view's offset
        words: Any = ([None] * target.size(1) if part is None else unbind(part, 1) for part in projected)
        states: list[State] = []
        for word in map(Words, *words):
            state = transition(word, memory, state)
            states.append(state)

        def made(name: str) -> Any:
            """Return a value of every step; None if the steps have none."""
            values = [getattr(one, name) for one in states]
            return None if values[0] is None else torch.stack(values, dim=1)

        read = ("hidden", "context", "weights", "upper_weights", "head_weights", "condition")
        terms = {name: torch.stack([one.terms[name] for one in states], dim=1) for name in state.terms}
        return state._replace(terms=terms, **{name: made(name) for name in read}), state


def of_tokens(weights: Any, memory: Memory) -> Any:
    """Return ``w_tj`` of tokens, ``N x T x ... x S``, from weights of tokens or of segments, ``N x T x ... x G``."""
    if weights is None or memory.shares is None:
        return weights
    segments = grouped(weights, memory.shares).flatten(1, -2)  # B x kT x G
    with torch.autocast(weights.device.type, enabled=False):  # autocast would round the weights
        shared = torch.bmm(segments, memory.shares.to(weights.dtype))  # B x kT x S
    return shared.view(*weights.shape[:-1], -1)


def _joined(chunks: Sequence[Any]) -> Any:
    """Join chunks along the steps, also within dictionaries; None stays None."""
    if isinstance(chunks[0], dict):
        return {name: _joined([chunk[name] for chunk in chunks]) for name in chunks[0]}
    return chunks[0] if len(chunks) == 1 or chunks[0] is None else torch.cat(chunks, dim=1)  # type: ignore[arg-type]
