"""Attention over a sentence's annotations, of one level or of two.

A score compares the query with a key for each annotation, such as ``e_ij = v·tanh(query + key) + term``.  A history of
earlier steps (:mod:`.histories`) adds to the query, the key or the term.  A window (:mod:`.windows`) limits attention
to some positions.  A normalizer turns the energies of these positions into weights.

Shapes as in :mod:`.state`.
"""

import importlib.util
import inspect
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..registry import ConfigurationError, Part, Registry, Widths, above, at_least
from .additive import KeyFeatures
from .cells import plus
from .fast.energies import kept_small
from .histories import History, Past
from .init import Scheme
from .layer_norm import at_least_float32, layer_norm
from .state import Encoded, Memory, State, grouped
from .windows import MonotoneWindow, PredictiveWindow, Window

WINDOW = "--attention-window"
"""The name of the window's entries of memory and state; no history may have this name."""


def real_positions(padding_mask: Tensor) -> Tensor:
    """Return ``j``, the number of each real token from 1, for padding on either side, ``B x S``, float32."""
    return torch.cumsum(~padding_mask, dim=1).float()


class Normalizer(Part, nn.Module):
    """Turns energies into weights that are not negative, and that add up to 1 unless :attr:`adds_up` is False.

    Args:
        temperature: number by which energies are divided: below 1 attention is sharper, above it flatter.
    """

    package: ClassVar[str] = ""
    """the package that it needs"""
    adds_up: ClassVar[bool] = True
    """whether the weights of a step add up to 1; the weights of Graves 2013 do not"""

    def __init__(self, temperature: Annotated[float, above(0)] = 1.0):
        super().__init__()
        if self.package and importlib.util.find_spec(self.package) is None:
            raise ConfigurationError(
                f"--attention-normalizer: {type(self).__name__} needs the package {self.package}; pip install it"
            )
        self.temperature = temperature

    def normalize(self, energies: Tensor) -> Tensor:
        """Return weights for energies ``... x S``; the energy of unseen positions is the lowest number of the type."""
        raise self.lacks("a normalizer defines normalize(energies)")

    def forward(self, energies: Tensor, unseen: Tensor, factor: Tensor | None = None) -> Tensor:
        """Return weights ``... x S``; unseen positions get exactly zero, unless all positions are unseen.

        Args:
            energies: ``... x S``.
            unseen: True where attention does not look, ``... x S``.
            factor: multiplies the weights, ``... x S``; weights that added up to 1 are scaled to do so again.
        """
        energies = energies if self.temperature == 1 else energies / self.temperature
        weights = self.normalize(energies.masked_fill(unseen, torch.finfo(energies.dtype).min))
        if factor is None:
            return weights
        weights = weights * factor
        return weights / weights.sum(-1, keepdim=True) if self.adds_up else weights


def adds_up(model: nn.Module) -> bool:
    """Whether the weights of all normalizers of a model add up to 1."""
    return all(part.adds_up for part in model.modules() if isinstance(part, Normalizer))


NORMALIZERS: Registry[type[Normalizer]] = Registry("attention normalizer", Normalizer)
register_normalizer = NORMALIZERS.register


@register_normalizer("softmax")
class Softmax(Normalizer):
    """Weights that are never quite 0."""

    def normalize(self, energies: Tensor) -> Tensor:
        return torch.softmax(energies, dim=-1)


@register_normalizer("sparsemax")
class Sparsemax(Normalizer):
    """Weights that are exactly 0 where an energy is far below the highest one (Martins & Astudillo 2016)."""

    package = "entmax"
    function = "sparsemax"

    def normalize(self, energies: Tensor) -> Tensor:
        import entmax

        weights: Tensor = getattr(entmax, self.function)(energies, dim=-1)
        return weights


@register_normalizer("entmax")
class Entmax(Sparsemax):
    """Weights between the softmax's and the sparsemax's, ``α = 1.5`` (Peters et al. 2019)."""

    function = "entmax15"


class Attended(NamedTuple):
    """The result of one call of attention."""

    context: Tensor
    """``c_i``, ``N x a``, with two levels ``N x (a + a')``."""
    weights: Tensor
    """``w_ij``, ``N x S``, float32."""
    upper_weights: Tensor | None = None
    """weights of the upper level, if there are two levels, ``N x W``, float32."""
    head_weights: Tensor | None = None
    """weights of each head, if there are several, ``N x h x S``, float32."""
    terms: dict[str, Tensor] = {}
    """inputs of a loss, by their name in the model's output, ``N x ...``"""


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """``Σ_j w_j v_j``, ``N x a``, from weights ``N x S`` and values ``B x S x a``."""
    return torch.bmm(grouped(weights, values).to(values.dtype), values).flatten(0, 1)  # of B x k x S


class Attention(Part, nn.Module):
    """``w_i = softmax(e_i)`` of a score's energies ``e_ij``, and ``c_i = Σ_j w_ij s_j``.

    (Feng et al. 2016 §3.2, Li et al. 2018 eq. 6-7.)

    A score is a subclass that defines :meth:`energies`, registered by :data:`register_score`.

    Args:
        widths: of the query (``hidden``), of the annotations, of the projected query and keys (``attention``), and of a
            guide, a second part of the query (Zhao and Zhang 2018 §3), or 0 without one.
        histories: add their terms to the score, by name.
        norm: layer normalisation of the projected query and keys.
        normalizer: turns energies into weights; the softmax by default.
        window: where attention may look; None for anywhere.
    """

    projects_query = projects_keys = True
    key_bias = False  # in a product a bias would add the same number to all energies of a query

    def __init__(
        self,
        widths: Widths,
        histories: dict[str, History] | None = None,
        norm: bool = False,
        normalizer: Normalizer | None = None,
        window: Window | None = None,
    ):
        super().__init__()
        query, keys = self.projects_query, self.projects_keys
        if not (query or keys) and widths.hidden != widths.annotation:
            raise ConfigurationError(
                "--attention-score: this one multiplies the decoder's state by annotations, so they must be equally "
                f"wide, not {widths.hidden} and {widths.annotation}: set --decoder-hidden-size (an annotation is twice "
                "as wide as --encoder-hidden-size, and --bridge-source adds an embedding), or use bilinear"
            )
        if not (query or keys) and widths.guide:
            raise ConfigurationError(
                "--attention-via guides the lower level by what it adds to a projected query, and this "
                "--attention-score has none; use scaled, or add --attention-via-unguided"
            )
        reads = any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(self.energies).parameters.values())
        adding = [name for name, one in (histories or {}).items() if type(one).key_features is not History.key_features]
        if adding and not reads:
            raise ConfigurationError(
                f"--attention-history {adding[0]} adds features to the keys, and this --attention-score does not read "
                "them: define its energies(query, keys, *features)"
            )
        self.query = nn.Linear(widths.hidden, widths.attention, bias=False) if query else nn.Identity()
        self.guide = nn.Linear(widths.guide, widths.attention, bias=False) if widths.guide else None
        self.key = nn.Linear(widths.annotation, widths.attention, bias=self.key_bias) if keys else nn.Identity()
        self.histories = nn.ModuleDict(histories or {})
        self.query_norm = layer_norm(norm and query, widths.attention)
        self.key_norm = layer_norm(norm and keys, widths.attention)
        self.normalizer = normalizer or Softmax()
        self.window = window

    @property
    def independent(self) -> bool:
        """Whether weights depend only on the query and, in some windows, the step's number, not on earlier steps."""
        looks = self.window is None or type(self.window) in (MonotoneWindow, PredictiveWindow)
        return type(self).forward is Attention.forward and looks and not self.histories

    @property
    def carrying(self) -> dict[str, Any]:
        """The components that may have a state: the histories and the window."""
        window = {} if self.window is None else {WINDOW: self.window}
        return {**self.histories, **window}

    def start(self, memory: Memory) -> dict[str, Any]:
        """Return the states of histories and window before the first step, by name."""
        return {name: part.start(memory) for name, part in self.carrying.items()}

    def pasts(self, memory: Memory, state: State, query: Tensor, hidden: Tensor | None = None) -> dict[str, Past]:
        """Return the inputs of the histories and the window at a step, by name."""
        return {
            name: Past(memory, state, memory.histories[name], state.histories[name], query, hidden)
            for name in self.carrying
        }

    def next(
        self, memory: Memory, state: State, query: Tensor, weights: Tensor, previous: Tensor, hidden: Tensor
    ) -> dict[str, Any]:
        """Return the states of histories and window after a step, from ``w_ij``, ``h_{i-1}`` and ``h_i``."""
        pasts = self.pasts(memory, state, query, hidden)
        return {name: part.next(pasts[name], weights, previous) for name, part in self.carrying.items()}

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        """``e_ij``, ``B x k x S``, or with ``h`` heads ``h x B x k x S``, float32 or better.

        Args:
            query: projected, ``B x k x A``.
            keys: from :meth:`memory`.
            features: are added to the keys, each ``B x k x S x f`` and a matrix ``A x f``.
        """
        raise self.lacks("a score defines energies(query, keys, *features)")

    def memory(self, encoded: Encoded) -> Memory:
        """Return the input of every step, computed once per sentence."""
        keys, positions = self.key_norm(self.key(encoded.annotations)), real_positions(encoded.padding_mask)
        known = {name: part.remember(encoded.annotations) for name, part in self.carrying.items()}
        return Memory(keys, encoded.annotations, encoded.padding_mask, positions, encoded.embeddings, histories=known)

    def forward(self, query: Tensor, memory: Memory, state: State, added: Tensor | None = None) -> Attended:
        """Attend once.

        Args:
            query: ``N x query_dim``.
            memory: of the sentences.
            state: of the previous step, for the histories.
            added: is added to the projected query, ``N x A``, such as a projected guide; or None.
        """
        pasts = self.pasts(memory, state, query)
        histories: Any = [(history, pasts[name]) for name, history in self.histories.items()]
        to_query = [history.query_term(past) for history, past in histories]
        to_keys = [history.key_features(past) for history, past in histories]
        to_energies = [history.energy_term(past) for history, past in histories]
        projected = plus(self.query_norm(self.query(query)), added, *to_query)  # N x A
        projected = grouped(projected, memory.keys)  # B x k x A
        energies = self.energies(projected, memory.keys, *filter(None, to_keys))  # B x k x S, or h x B x k x S
        energies = at_least_float32(energies)  # a custom score may return the model's type
        unseen, factor = memory.padding_mask.unsqueeze(1), None
        if self.window is not None:
            unseen, factor = self.window.look(pasts[WINDOW])
        weights = self.normalizer(plus(energies, *to_energies), unseen, factor)
        attended = self.read(weights, memory)
        return attended._replace(context=attended.context.to(query.dtype))

    def read(self, weights: Tensor, memory: Memory) -> Attended:
        """Return the context and the weights, for weights with the shape of :meth:`energies`."""
        weights = weights.flatten(0, -2)  # N x S
        return Attended(weighted_sum(weights, memory.values), weights)


SCORES: Registry[type[Attention]] = Registry("attention score", Attention)
register_score = SCORES.register


@register_score("additive")
class AdditiveAttention(Attention):
    """Bahdanau's score, ``e_ij = v·tanh(W q + U s_j + b)`` (Feng et al. 2016 §3.2, Li et al. 2018 §2)."""

    key_bias = True

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.vector = nn.Parameter(torch.empty(widths.attention))
        self.equation = kept_small

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        return self.equation(query, keys, self.vector, *features)


@register_score("additive_normed")
class NormedAdditiveAttention(AdditiveAttention):
    """``e_ij = g v/|v|·tanh(W q + U s_j + b)``, the additive score with a weight-normalised vector (NVIDIA's GNMT v2).

    ``g`` starts at ``1 / √A``.
    """

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.gain = nn.Parameter(torch.empty(1))

    def initialise(self, scheme: Scheme) -> None:
        """Fill the gain; all other parameters have the usual initial values."""
        nn.init.constant_(self.gain, self.vector.size(0) ** -0.5)

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        return self.equation(query, keys, self.gain * self.vector / self.vector.norm(), *features)


@register_score("dot")
class DotAttention(Attention):
    """``e_ij = q·s_j`` (Luong et al. 2015), and the base of all products, for ``h`` heads of width ``d``.

    A history's term of the keys is never formed: ``q·(V f) = (Vᵀ q)·f``.
    """

    projects_query = projects_keys = False
    heads = 1
    scale = 1.0

    def memory(self, encoded: Encoded) -> Memory:
        memory = super().memory(encoded)
        return memory._replace(keys=by_head(memory.keys, self.heads))

    def energies(self, query: Tensor, keys: Tensor, *features: KeyFeatures) -> Tensor:
        query = query.unflatten(2, (self.heads, -1)).transpose(1, 2) * self.scale  # B x h x k x d
        energies = query.to(keys.dtype) @ keys.mT  # B x h x k x S
        for values, matrix in features:
            own = query @ matrix.unflatten(0, (self.heads, -1)).to(query.dtype)  # Vᵀ q, B x h x k x f
            terms = values.to(own.dtype) @ own.permute(0, 2, 3, 1)  # B x k x S x h
            energies = energies + terms.permute(0, 3, 1, 2)
        return at_least_float32(energies).transpose(0, 1)


@register_score("bilinear")
class BilinearAttention(DotAttention):
    """``e_ij = q·(W s_j)`` (Luong et al. 2015, general)."""

    projects_keys = True


@register_score("scaled")
class ScaledAttention(DotAttention):
    """``e_ij = (W_q q)·(W_k s_j) / √d`` (Vaswani et al. 2017 §3.2.1)."""

    projects_query = projects_keys = True

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.scale = (widths.attention / self.heads) ** -0.5


@register_score("multihead")
class MultiHeadAttention(ScaledAttention):
    """``c_i = W_o [c_1; ...; c_h]``, with heads ``c = Σ_j w_ij W_v s_j`` that score as :class:`ScaledAttention`.

    (Vaswani et al. 2017 §3.2.2.)  The keys of all heads together have width ``A``, and so have the values; the context
    is as wide as an annotation.  The weights are the mean over the heads, which histories read.  A history's term of
    the energies is added to every head.

    Args:
        heads: number of heads of --attention-score multihead.
    """

    def __init__(self, widths: Widths, *parts: Any, heads: Annotated[int, at_least(1)] = 8, **options: Any):
        if widths.attention % heads:
            raise ConfigurationError(
                f"--attention-heads {heads} must divide the width at which attention compares, which is "
                f"{widths.attention}: set --attention-dim, or --attention-via-dim for the lower level"
            )
        self.heads = heads
        super().__init__(widths, *parts, **options)
        self.value = nn.Linear(widths.annotation, widths.attention, bias=False)
        self.output = nn.Linear(widths.attention, widths.annotation, bias=False)

    def memory(self, encoded: Encoded) -> Memory:
        values = self.value(encoded.annotations)
        return super().memory(encoded)._replace(values=by_head(values, self.heads))

    def read(self, weights: Tensor, memory: Memory) -> Attended:
        weights = weights.transpose(0, 1)  # B x h x k x S
        contexts = weights.to(memory.values.dtype) @ memory.values  # B x h x k x d
        context = self.output(contexts.transpose(1, 2).flatten(2).flatten(0, 1))  # N x a
        heads = weights.transpose(1, 2).flatten(0, 1)  # N x h x S
        return Attended(context, heads.mean(1), head_weights=heads)


class AttentionViaAttention(nn.Module):
    """Attention to a lower level that is guided by attention to an upper one (Zhao and Zhang 2018 §3).

    ``c^w`` is the context of the upper level for the query ``r``; ``c^c`` is the context of the lower level, where the
    projected query is ``W_cr r + W_cc c^w``.  The context is ``c = [c^w; c^c]``.  ``c^w`` is a weighted sum, so
    ``W_cc c^w`` is a weighted sum of annotations that are projected once.

    Args:
        upper, lower: attention to the two levels; the lower one has the guide ``c^w`` (without a guide the two are
            independent), the histories and the window.
    """

    def __init__(self, upper: Attention, lower: Attention):
        super().__init__()
        self.upper = upper
        self.lower = lower

    @property
    def independent(self) -> bool:
        """Whether the weights of both levels are independent."""
        return self.upper.independent and self.lower.independent

    def start(self, memory: Memory) -> dict[str, Any]:
        """Return the states of the lower level before the first step."""
        return self.lower.start(memory)

    def next(self, *step: Any) -> dict[str, Any]:
        """Return the states of the lower level after a step."""
        return self.lower.next(*step)

    def memory(self, encoded: Encoded) -> Memory:
        """Return the input of every step, computed once per sentence."""
        annotations, padding_mask = encoded.upper_annotations, encoded.upper_padding_mask
        assert annotations is not None and padding_mask is not None
        upper = self.upper.memory(encoded._replace(annotations=annotations, padding_mask=padding_mask))
        kind = type(self.upper)  # annotations are projected only if the context is their weighted sum
        guide = self.lower.guide if kind.read is Attention.read and kind.forward is Attention.forward else None
        guides = None if guide is None else guide(upper.values)  # B x W x A
        return self.lower.memory(encoded)._replace(upper=upper._replace(guides=guides))

    def forward(self, query: Tensor, memory: Memory, state: State, added: Tensor | None = None) -> Attended:
        """Attend once to each level, as :meth:`Attention.forward`; ``added`` is added to the upper level's query."""
        memories: Any = memory.upper
        upper = self.upper(query, memories, state, added)
        guide: Tensor | None = None  # N x A
        if memories.guides is not None:
            guide = weighted_sum(upper.weights, memories.guides)
        elif self.lower.guide is not None:
            guide = self.lower.guide(upper.context)
        lower = self.lower(query, memory, state, guide)
        context = torch.cat([upper.context, lower.context], dim=1)
        terms = {**{f"word_{name}": term for name, term in upper.terms.items()}, **lower.terms}
        return Attended(context, lower.weights, upper.weights, lower.head_weights, terms)


def by_head(values: Tensor, heads: int) -> Tensor:
    """``B x h x S x d``, from ``B x S x (h·d)``."""
    apart: Tensor = values.unflatten(2, (heads, -1))  # B x S x h x d
    return apart.transpose(1, 2).contiguous()
