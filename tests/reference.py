"""The papers' equations again, sentence by sentence and word by word, in plain float64 loops.

Nothing here calls the package's mathematics: only its parameters are read, by name.
"""

import math
from typing import NamedTuple

import torch
from conftest import SPACE


class Matrices:
    """Parameters below a prefix, by name, in float64."""

    def __init__(self, named, prefix="", joint=False):
        self.named, self.prefix = named, prefix
        self.joint = joint  # whether a GRU's gates are normalised with its candidate

    def below(self, name):
        """Return the parameters of a part, or the same ones if the name is empty."""
        return Matrices(self.named, f"{self.prefix}{name}." if name else self.prefix, self.joint)

    def __contains__(self, name):
        return self.prefix + name in self.named

    def __call__(self, name):
        return self.named[self.prefix + name].detach().double()

    def affine(self, name, value):
        return self(name + ".weight") @ value + self(name + ".bias")

    def linear(self, name, value):
        """Return a projected value, or the value itself if the model has no such matrix."""
        if name + ".weight" not in self:
            return value
        value = self(name + ".weight") @ value
        return value + self(name + ".bias") if name + ".bias" in self else value

    def norm(self, name, values, parts=None):
        """Normalise parts of a row, if the model has the norm of this name."""
        if name + ".weight" not in self:
            return values
        widths, rows = parts or [len(values)], (values, self(name + ".weight"), self(name + ".bias"))
        return torch.cat([normalised(*part) for part in zip(*(row.split(widths) for row in rows))])

    def several(self, name):
        """Return the number of parts below a name, which are numbered from 0."""
        start = f"{self.prefix}{name}."
        return 1 + max((int(n[len(start) :].split(".")[0]) for n in self.named if n.startswith(start)), default=-1)


def matrices(model):
    return Matrices(dict(model.named_parameters(remove_duplicate=False)), joint=model.cfg.layer_norm_joint)


def normalised(values, gain, bias):
    """Ba et al. 2016, with Nematus's 1e-5."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return gain * (values - mean) / torch.sqrt(variance + 1e-5) + bias


# Cells


def plain(side, sums):
    return sums


def gru(x, h, w, u, b, b_u=None, norm=plain):
    """One GRU step; rows of w and u hold r, z, candidate."""
    n = h.numel()
    wx, uh = norm("input", w @ x + b), norm("recurrent", u @ h + (0 if b_u is None else b_u))
    r, z = torch.sigmoid(wx[:n] + uh[:n]), torch.sigmoid(wx[n : 2 * n] + uh[n : 2 * n])
    candidate = torch.tanh(wx[2 * n :] + r * uh[2 * n :])
    return z * h + (1 - z) * candidate


def adaptive_gru(x, h, w, u, b, norm=plain):
    """Li et al. 2018 eq. 13-17 with the reset gate after the product; rows of w and u hold r, z, candidate, g."""
    n = h.numel()
    wx, uh = norm("input", w @ x + b).split(n), norm("recurrent", u @ h).split(n)
    g = torch.sigmoid(wx[3] + uh[3])
    r, z = (torch.sigmoid((1 - g) * wx[k] + g * uh[k]) for k in (0, 1))
    candidate = torch.tanh((1 - g) * wx[2] + g * (r * uh[2]))
    return g * z * h + (1 - z) * candidate


def lstm(x, state, w, u, b, norm=plain):
    n = u.size(1)
    h, c = state[:n], state[n:]
    total = norm("input", w @ x + b) + norm("recurrent", u @ h)
    i, f, g, o = total.split(n)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])


def released_adaptive_gru(x, h, w, u, b, norm=plain):
    """The second step in Li et al.'s released code: no bias is weighted, and 1 - g scales the full candidate."""
    n = h.numel()
    wx, uh, b = (w @ x).split(n), (u @ h).split(n), b.split(n)
    g = torch.sigmoid(wx[3] + uh[3] + b[3])
    r, z = (torch.sigmoid((1 - g) * wx[k] + g * uh[k] + b[k]) for k in (0, 1))
    candidate = (1 - g) * torch.tanh(wx[2] + g * r * (uh[2] + b[2]))
    return g * z * h + (1 - z) * candidate


STEPS = {"gru": gru, "adaptive_gru": adaptive_gru, "lstm": lstm}
STEPS["released_adaptive_gru"] = released_adaptive_gru


def cell_norm(p, kind, n):
    """Return the norm of a cell's sums: a GRU's gates together, its candidate, and g; all four of an LSTM."""
    gru = (3,) if p.joint else (2, 1)
    parts = [k * n for k in {"gru": gru, "lstm": (4,)}.get(kind, (2, 1, 1))]
    return lambda side, sums: p.norm(side + "_norm", sums, parts)


def further(p, kind, state):
    """One step of a cell that reads only the state."""
    u, b = p("recurrent.weight"), p("bias")
    norm = cell_norm(p, kind, u.size(1))
    return STEPS[kind](torch.zeros(1).double(), state, torch.zeros(len(b), 1).double(), u, b, *second(p), norm=norm)


def reading_cell(p, kind, inputs, state):
    """One step of a cell that reads named inputs."""
    w, u = torch.cat([p(f"inputs.{name}.weight") for name in inputs], dim=1), p("recurrent.weight")
    b = p("bias") if "bias" in p else p(f"inputs.{next(iter(inputs))}.bias")
    norm = cell_norm(p, kind, u.size(1))
    return STEPS[kind](torch.cat(list(inputs.values())), state, w, u, b, *second(p), norm=norm)


def second(p):
    """Return a list with the bias of a cell's recurrent product, if it has one."""
    return [p("recurrent.bias")] if "recurrent.bias" in p else []


def gated_cell(p, kind, gate, conditional, inputs, h):
    """Tu et al. 2017; rows of each input's matrix hold the cell's sums and z."""
    n = len(h)
    parts = [k * n for k in {"gru": (3, 1) if p.joint else (2, 1, 1), "adaptive_gru": (2, 1, 1, 1)}[kind]]
    sums = {"source": torch.zeros(1).double(), "target": torch.zeros(1).double()}
    for name, value in inputs.items():
        side = "source" if name in ("context", "attended") else "target"
        sums[side] = sums[side] + p(f"{side}.{name}.weight") @ value
    for side, total in sums.items():
        sums[side] = p.norm(side + "_norm", total, parts) if len(total) > 1 else total
    z = torch.sigmoid(sums["source"][-n:] + sums["target"][-n:] + p("gate.weight") @ h + p("gate.bias"))
    of_source = 1 if gate == "target" else z
    of_target = {"source": 1, "target": z, "both": 1 - z}[gate]
    u, b = p("cell.recurrent.weight"), p("cell.bias")
    if conditional:  # a cell before it has read the word
        h, of_target = of_target * h, 1
    blocks = lambda side, share: torch.cat([share * part for part in sums[side][:-n].split(n)])  # noqa: E731
    x = blocks("source", of_source) + b
    if len(sums["target"]) > 1:
        x = x + blocks("target", of_target)
    norm = cell_norm(p.below("cell"), kind, n)
    b_u = sum(second(p.below("cell")))
    recurrent = torch.cat([of_target * part for part in norm("recurrent", u @ h + b_u).split(n)])
    scaled = {"input": x, "recurrent": recurrent}
    return STEPS[kind](x, h, torch.eye(len(x)).double(), u, 0, norm=lambda side, _: scaled[side])


# Encoder


def recurrence(p, kind, layer, direction=0):
    """Return a layer's step, a function of an input and a state, and the width of its output."""
    p = p.below(f"layers.{layer}")
    cell = p.below(f"cells.{direction}")
    deep = cell.several("cells")
    first = cell.below("cells.0" if deep else "")
    if "recurrent.weight" in first:
        w, u = first("inputs.input.weight"), first("recurrent.weight")
        b = [first("inputs.input.bias"), *second(first)]
    else:
        suffix = "_l0" + direction * "_reverse"
        w, u, *b = (p(name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    if kind == "lstm":
        b = [sum(b)]
    n = u.size(1)

    def step(x, state):
        state = STEPS[kind](x, state, w, u, *b, norm=cell_norm(first, kind, n))
        for k in range(1, deep):
            state = further(cell.below(f"cells.{k}"), kind, state)
        return state

    return step, n


def layers(p, kind, inputs, count, bidirectional=0, residuals=0, reads="both", on_layers=False):
    """Return the outputs of stacked layers, and the last output of each direction of the top layer."""
    for layer in range(count):
        runs, last = [], []
        for direction in range(2 if layer < bidirectional else 1):
            step, n = recurrence(p, kind, layer, direction)
            state, outputs = torch.zeros(2 * n if kind == "lstm" else n).double(), {}
            for j in range(len(inputs))[:: -1 if direction else 1]:
                read = inputs[j]
                if layer + on_layers and layer < bidirectional and reads != "both":
                    ahead, back = read.chunk(2)
                    read = {"own": (ahead, back), "other": (back, ahead)}[reads][direction]
                outputs[j] = state = step(read, state)
            last.append(state[:n])
            runs.append([outputs[j][:n] for j in range(len(inputs))])
        outputs = [torch.cat(parts) for parts in zip(*runs)]
        if reads == "other" and layer + on_layers and layer < bidirectional:
            inputs = [torch.cat(x.chunk(2)[::-1]) for x in inputs]
        inputs = [s + x for s, x in zip(outputs, inputs)] if 0 < residuals <= layer + 1 else outputs
    return inputs, last


def convolved(p, cfg, x):
    """Segments of characters: maxima of filters of width 1, 2, ... with zeros around the sentence, and highways."""
    found = [[] for _ in x]
    for number, width in enumerate(w for w, many in enumerate(map(int, cfg.encoder_filters.split("-")), 1) if many):
        weight = p(f"convolutions.{number}.weight")  # filters x m x width
        bias = p(f"convolutions.{number}.bias")
        for j in range(len(x)):
            places = [(o, j - width // 2 + o) for o in range(width)]
            total = bias + sum(weight[:, :, o] @ x[place] for o, place in places if 0 <= place < len(x))
            found[j].append(total.clamp(min=0))
    characters = [torch.cat(parts) for parts in found]
    segments = []
    for start in range(0, len(x), cfg.encoder_pooling):
        s = torch.stack(characters[start : start + cfg.encoder_pooling]).amax(0)
        for k in range(cfg.encoder_highway_layers):
            highway = p.below(f"highways.{k}")
            t = torch.sigmoid(highway.affine("transform", s))
            s = t * highway.affine("candidate", s).clamp(min=0) + (1 - t) * s
        segments.append(s)
    return segments


def shared(cfg, w, tokens):
    """Return each character's equal share of the weight of its segment, or of its word."""
    if str(cfg.encoder_type) == "hierarchical":
        segment = [sum(token == SPACE for token in tokens[:j]) for j in range(len(tokens))]
    else:
        segment = [j // cfg.encoder_pooling for j in range(len(tokens))]
    return [w[g] / segment.count(g) for g in segment]


class Encoded(NamedTuple):
    """The encoding of one unpadded sentence."""

    embeddings: list
    annotations: list
    upper: list  # annotations of the upper level, or None
    last: list  # each direction's last state

    @property
    def top(self):
        return self.annotations if self.upper is None else self.upper


def encode(model, cfg, tokens):
    """Encode one unpadded sentence."""
    p = matrices(model).below("encoder")
    x = inputs = p("embed_tokens.weight")[tokens]
    kind, count = str(cfg.encoder_cell), cfg.encoder_layers
    both, r, reads = cfg.encoder_bidirectional_layers or count, cfg.residuals, str(cfg.encoder_reads)
    p = p.below("network")
    if str(cfg.encoder_type) == "convolutional":
        p, inputs = p.below("above"), convolved(p, cfg, x)
    if str(cfg.encoder_type) == "hierarchical":
        s, _ = layers(p.below("characters"), str(cfg.encoder_char_cell), x, 1)
        words = [s[j] for j, token in enumerate(tokens.tolist()) if token in (SPACE, 2)]
        upper, last = layers(p.below("words"), kind, words, count, both, r, reads)
        if cfg.attention_via_words_alone:
            return Encoded(x, upper, None, last)
    elif cfg.attention_via:
        s, _ = layers(p.below("rnn"), kind, inputs, 1, 1)
        upper, last = layers(p.below("upper"), kind, s, count - 1, both - 1, max(0, r - 1), reads, True)
    else:
        (s, last), upper = layers(p.below("rnn"), kind, inputs, count, both, r, reads), None
    s = [torch.cat([s[j], *([x[j]] if cfg.bridge_source else [])]) for j in range(len(s))]
    return Encoded(x, s, upper, last)


# Attention


def softmax(energies):
    return [math.exp(e) / sum(math.exp(other) for other in energies) for e in energies]


def sparse(shares):
    """Return a normaliser that finds, by bisection, the threshold below energies at which weights add up to 1."""

    def normaliser(energies):
        low, high = min(energies) - 2, max(energies)
        for _ in range(200):
            threshold = (low + high) / 2
            if sum(shares(max(e - threshold, 0)) for e in energies) > 1:
                low = threshold
            else:
                high = threshold
        return [shares(max(e - low, 0)) for e in energies]

    return normaliser


NORMALISERS = {
    "softmax": softmax,
    "sparsemax": sparse(lambda excess: excess),  # Martins & Astudillo 2016, eq. 2
    "entmax": sparse(lambda excess: (excess / 2) ** 2),  # Peters et al. 2019, eq. 11 with α = 1.5
}


class Past:
    """Attention's memory of earlier steps: their number, the last context and weights, and by position the sum of all
    weights and the state of Tu et al.'s neural coverage."""

    def __init__(self, cfg, source):
        self.steps, self.weights = 0, None
        width = len(source.annotations[0]) + (0 if source.upper is None else len(source.upper[0]))
        self.context = torch.zeros(width).double()
        self.covered = [0.0] * len(source.annotations)
        self.coverage = [torch.zeros(cfg.attention_coverage_dim).double()] * len(source.annotations)

    def remember(self, p, paths, s, w, h):
        """Add a step's weights, given the state before it."""
        self.steps += 1
        for j in range(len(s)):
            self.covered[j] = self.covered[j] + w[j]
            if "coverage_gru" in paths:
                read = {"annotation": s[j], "hidden": h, "weight": torch.tensor([w[j]], dtype=torch.float64)}
                cell = p.below("histories.coverage_gru.cell")
                self.coverage[j] = reading_cell(cell, "gru", read, self.coverage[j])


def looked_at(p, cfg, query, length, step, window):
    """Return positions, from 0, and the factors of their weights (Luong et al. 2015 eq. 9, 10)."""
    reach = cfg.attention_window_width
    if window == "none":
        return list(range(length)), [1.0] * length
    if window == "monotone":
        centre = min(step, length)
    else:
        place = torch.dot(p("window.vector"), torch.tanh(p.linear("window.query", query)))
        centre = length / (1 + math.exp(-float(place)))
    looks = [j for j in range(length) if centre - reach <= j + 1 <= centre + reach]
    if window == "monotone":
        return looks, [1.0] * length
    return looks, [math.exp(-((j + 1 - centre) ** 2) / (2 * (reach / 2) ** 2)) for j in looks]


def remembering_key(p, paths, s, j, past):
    """Return an annotation's key, with the terms of histories."""
    key = p.norm("key_norm", p.linear("key", s[j]))
    if "convolution" in paths:
        before = [1.0 / len(s)] * len(s) if past.weights is None else past.weights
        filters = p("histories.convolution.filters.weight")[:, 0]  # k x r
        places = [(o, j + o - filters.size(1) // 2) for o in range(filters.size(1))]
        g = sum(filters[:, o] * before[place] for o, place in places if 0 <= place < len(s))
        key = key + p("histories.convolution.projection.weight") @ g
    if "coverage" in paths:
        key = key + p("histories.coverage.projection.weight")[:, 0] * past.covered[j]
    if "fertility" in paths:
        fertility = 2 / (1 + torch.exp(-p("histories.fertility.fertility.weight")[0] @ s[j]))
        key = key + p("histories.fertility.projection.weight")[:, 0] * past.covered[j] / fertility
    if "coverage_gru" in paths:
        key = key + p("histories.coverage_gru.projection.weight") @ past.coverage[j]
    return key


def scored(p, score, query, key):
    """Return one head's energy."""
    if score == "level":
        return 0.0
    if score.startswith("additive"):
        v = p("vector")
        v = p("gain") * v / math.sqrt(sum(v**2)) if score == "additive_normed" else v
        return float(torch.dot(v, torch.tanh(query + key)))
    energy = float(torch.dot(query, key))
    return energy / math.sqrt(len(query)) if score in ("scaled", "multihead") else energy


def attend_to(p, cfg, s, query, past, paths=(), also=0, window="none"):
    """Return the context of annotations, and their weights; ``also`` is added to the projected query."""
    score = str(cfg.attention_score)
    heads = cfg.attention_heads if score == "multihead" else 1
    asked = p.norm("query_norm", p.linear("query", query)) + also
    if "context" in paths:
        asked = asked + p("histories.context.projection.weight") @ past.context
    energies = [[] for _ in range(heads)]
    for j in range(len(s)):
        key = remembering_key(p, paths, s, j, past)
        for own, one, other in zip(energies, asked.chunk(heads), key.chunk(heads)):
            own.append(scored(p, score, one, other))
    if "distance" in paths:
        mean = 0.0 if past.weights is None else sum((j + 1) * past.weights[j] for j in range(len(s)))
        energies = [[e - math.log(1 + math.exp(-(j + 1 - mean))) for j, e in enumerate(own)] for own in energies]
    looks, shares = looked_at(p, cfg, query, len(s), past.steps + 1, window)
    weights = []
    for own in energies:
        found = NORMALISERS[str(cfg.attention_normalizer)]([own[j] / cfg.attention_temperature for j in looks])
        found = [share * f for share, f in zip(shares, found)]
        weights.append([found[looks.index(j)] / sum(found) if j in looks else 0.0 for j in range(len(s))])
    mean = [sum(own[j] for own in weights) / heads for j in range(len(s))]
    if score != "multihead":
        return sum(mean[j] * s[j] for j in range(len(s))), mean
    values = [p.linear("value", annotation).chunk(heads) for annotation in s]
    contexts = [sum(own[j] * values[j][k] for j in range(len(s))) for k, own in enumerate(weights)]
    return p.linear("output", torch.cat(contexts)), mean


# Decoder


class Decoder:
    """The decoder on one sentence, with what a step reads from the previous one: the state h, q, the condition, and
    attention's memory."""

    def __init__(self, model, cfg, source, features=None):
        self.features, self.feature_weights = features, []
        self.p, self.cfg, self.source = matrices(model).below("decoder.network"), cfg, source
        self.n, self.count, self.kind = cfg.decoder_hidden_size, cfg.decoder_layers, str(cfg.decoder_cell)
        self.order, self.paths = str(cfg.decoder_transition), set(cfg.attention_history.split("+"))
        states = [self.initial(f"initial.{k}" if cfg.initial_state_per_layer else "initial") for k in range(self.count)]
        late = self.order == "late" and not cfg.context_to_layers  # otherwise the layers above read the context
        self.inside = self.count if late or self.order == "stacked" else 1  # layers that step with attention
        self.states, self.above = states[: self.inside], states[self.inside :]
        self.q = self.initial("initial_query") if "state" in self.paths else None
        self.condition = torch.cat(source.last)
        self.past, self.word_weights = Past(cfg, source), None

    def initial(self, name):
        """Return a first state, from the mean of annotations, or from the backward direction's last state."""
        top, start = self.source.top, str(self.cfg.initial_state)
        if start == "zero":
            return torch.zeros(self.n * (2 if self.kind == "lstm" else 1)).double()
        summary = sum(top) / len(top) if start == "mean" else self.source.last[-1]
        state = self.p.norm(f"{name}.norm", self.p.affine(f"{name}.projection", summary))
        return state if start == "linear" else torch.tanh(state)

    def step(self, y):
        """Make a step after the word y; return the hidden vector that the readout reads."""
        old, before = torch.cat(self.states), self.top_of(self.states)
        first = {"target": y, **({"previous_context": self.past.context} if self.cfg.input_feed else {})}
        if self.features is not None:
            first["features"], weights = self.described(before)
            self.feature_weights.append(weights)
        if self.order in ("late", "stacked"):
            hidden = self.stack(y, first, before)
        else:
            if self.order == "conditional":
                self.states = [self.cell("before", first, self.states[0])]
                first = {}
            self.attend(self.states[0][: self.n], y)
            self.states = [self.cell("after", {**first, **self.attended()}, self.states[0])]
            hidden = None
        self.past.remember(self.lower(), self.paths, self.source.annotations, self.past.weights, before)
        if self.q is not None:
            read = {"hidden": before, "context": self.past.context}
            self.q = reading_cell(self.p.below("transition.query_cell"), "gru", read, self.q)
        if self.cfg.decoder_condition:
            self.states = [self.conditioned(y, old, self.states[0])]
        return self.topmost(self.states[0][: self.n] if hidden is None else hidden)

    def described(self, query):
        """Return the mean of the source's features, weighted by attention, or zero without features."""
        p, weights = self.p.below("transition.features"), []
        query = p.norm("query_norm", p.linear("query", query))
        keys = [p.norm("key_norm", p.affine("key", feature)) for feature in self.features]
        energies = [p("vector") @ torch.tanh(query + key) for key in keys]
        weights = softmax(energies) if energies else []
        zero = torch.zeros(self.cfg.encoder_embed_dim).double()
        return sum((w * feature for w, feature in zip(weights, self.features)), zero), weights

    def stack(self, y, first, before):
        """Make a step of stacked layers, which are all before attention, or all after it."""
        name, context = "before", {}
        if self.order == "stacked":
            self.attend(before, y)
            name, first = "after", {**first, **self.attended()}
            context = {"context": self.past.context} if self.cfg.context_to_layers else {}
        states = [self.cell(f"{name}.cells.0" if self.inside > 1 else name, first, self.states[0])]
        for k in range(1, self.inside):
            states.append(self.cell(f"{name}.cells.{k}", {"below": self.top_of(states), **context}, self.states[k]))
        self.states, top = states, self.top_of(states)
        if self.order == "late":
            self.attend(top, y)
        if self.cfg.readout_all_layers:
            return torch.cat([self.top_of(states[: k + 1]) for k in range(self.count)])
        return top

    def top_of(self, states):
        """Return the output of stacked layers."""
        output = states[0][: self.n]
        for k in range(1, len(states)):
            output = states[k][: self.n] + (output if 0 < self.cfg.residuals <= k + 1 else 0)
        return output

    def cell(self, name, inputs, state):
        """Make a step of a cell of the transition, and of the cells after it that read only the state."""
        p, gate, after = self.p.below(f"transition.{name}"), str(self.cfg.context_gate), name.startswith("after")
        deep = p.several("cells")
        first = p.below("cells.0" if deep else "")
        if after and gate != "none":
            state = gated_cell(first, self.kind, gate, self.order == "conditional", inputs, state)
        else:
            released = after and self.cfg.adaptive_gru_released
            state = reading_cell(first, "released_adaptive_gru" if released else self.kind, inputs, state)
        for k in range(1, deep):
            state = further(p.below(f"cells.{k}"), self.kind, state)
        return state

    def lower(self):
        """Return the matrices of the attention that has histories, the lower one of two."""
        return self.p.below("transition.attention" + ("" if self.source.upper is None else ".lower"))

    def attend(self, query, y):
        """Attend to the source with a state as the query, or with attention's separate state."""
        query, cfg, guide = query if self.q is None else self.q, self.cfg, 0
        word = self.p("transition.query_word.weight") @ y if cfg.attention_reads_target else 0
        upper = []
        if self.source.upper is not None:
            p = self.p.below("transition.attention.upper")
            context, self.word_weights = attend_to(p, cfg, self.source.upper, query, self.past, also=word)
            guide = 0 if cfg.attention_via_unguided else self.lower()("guide.weight") @ context
            upper, word = [context], 0
        p, window = self.lower(), str(cfg.attention_window)
        context, weights = attend_to(
            p, cfg, self.source.annotations, query, self.past, self.paths, guide + word, window
        )
        self.past.context, self.past.weights = torch.cat([*upper, context]), weights

    def attended(self):
        """Return the inputs of the cell after attention."""
        w, read = self.past.weights, {"context": self.past.context}
        if self.cfg.bridge_target:
            read["attended"] = self.source.embeddings[max(range(len(w)), key=lambda j: w[j])]
        return read

    def conditioned(self, y, old, state):
        """Feng et al. 2016 section 5: the state, with the content that is not yet translated."""
        p = self.p.below("transition.condition")
        gate = p.affine("target", y) + p("hidden.weight") @ old + p("context.weight") @ self.past.context
        self.condition = torch.sigmoid(gate) * self.condition
        return state + torch.tanh(p("output.weight") @ self.condition)

    def topmost(self, hidden):
        """Return the output of the layers above the transition, from its output."""
        for k in range(len(self.above)):
            step, _ = recurrence(self.p.below("above"), self.kind, k)
            read = torch.cat([hidden, self.past.context]) if self.cfg.context_to_layers else hidden
            self.above[k] = step(read, self.above[k])
            hidden = self.above[k][: self.n] + (hidden if 0 < self.cfg.residuals <= k + 2 else 0)
        return hidden

    def bridged(self):
        """The source word that the direct bridge compares with the target's (Kuang et al. 2018 section 2.3)."""
        w, x = self.past.weights, self.source.embeddings
        if str(self.cfg.bridge_direct) == "soft":
            return sum(w[j] * x[j] for j in range(len(w)))
        return x[max(range(len(w)), key=lambda j: w[j])]


def read_out(p, cfg, hidden, y, c):
    """Return the features of a step."""
    if str(cfg.readout) == "state":
        return hidden
    read = {"hidden": hidden, "target": y, "context": c}
    parts = {name: p(f"{name}.weight") @ value for name, value in read.items()}
    biases = [name for name in read if f"{name}.bias" in p]
    assert len(biases) == (3 if cfg.readout_biases else 1)
    parts.update((name, parts[name] + p(f"{name}.bias")) for name in biases)
    parts = {name: p.norm(f"{name}_norm", value) for name, value in parts.items()}
    total = weighed(p.below("weighting"), cfg, read, parts) if cfg.adaptive_output else sum(parts.values())
    if str(cfg.readout) == "maxout":
        k = total.numel() // 2
        return torch.stack([max(total[i], total[i + k]) for i in range(k)])
    if str(cfg.readout) == "relu":
        return torch.relu(p.affine("second", torch.relu(total)))
    return total if str(cfg.readout) == "linear" else torch.tanh(total)


def copied(p, model, logits, hidden, y, c, source, weights):
    """See et al. 2017 eq. 8 and 9: the log-probability of each word, from generating and copying."""
    ours, theirs = model.encoder.dictionary, model.decoder.dictionary
    choice = p.affine("hidden", hidden) + p("target.weight") @ y + p("context.weight") @ c
    generates = float(1 / (1 + torch.exp(-choice)))
    total = sum(math.exp(e) for e in logits)
    probability = [generates * math.exp(e) / total for e in logits]
    for j, token in enumerate(source.tolist()):
        same = [k for k in range(len(theirs)) if theirs[k] == ours[token]]
        probability[same[0] if same else theirs.unk()] += (1 - generates) * weights[j]
    return torch.tensor(probability, dtype=torch.float64).log()


def weighed(p, cfg, read, parts):
    """Li et al. 2018 section 3.3: the sum of the parts, each times its weight."""
    others = {name: p(f"{name}.weight") @ value for name, value in read.items()}
    judged, summed = (others, parts) if cfg.adaptive_output_swapped else (parts, others)
    whole = p.affine("whole", sum(summed.values()))
    energy = {name: p("score.weight") @ torch.tanh(p("part.weight") @ judged[name] + whole) for name in read}
    total = sum(e.exp() for e in energy.values())
    return sum(energy[name].exp() / total * parts[name] for name in read)


class HardAlignment:
    """A word's alignment (Wu, Shapiro and Cotterell 2018; Wu and Cotterell 2019), by the forward algorithm."""

    def __init__(self, p, cfg, annotations):
        self.p, self.cfg, self.s = p, cfg, annotations
        self.before = [1.0] + [0.0] * (len(annotations) - 1)  # P(a_0), the first token
        self.made = None  # P(y | a_i = j) of all words

    def hear(self, word):
        """Take the word that was written, on which the next alignment depends."""
        if self.made is not None and str(self.cfg.readout) == "hard_monotone":
            joint = [prior * float(made[word]) for prior, made in zip(self.prior, self.made)]
            self.before = [each / sum(joint) for each in joint]

    def step(self, hidden, y, weights):
        """Return the log-probability of each word, and the prior of each position."""
        readout = self.p.below("network.readout")
        if str(self.cfg.readout) == "hard_attention":
            self.prior = weights
        else:
            self.prior = [0.0] * len(self.s)
            for k in range(len(self.s)):
                energies = readout.affine("jump", hidden) + readout("jump_from.weight") @ self.s[k]
                moves = softmax([float(e) for e in energies[: len(self.s) - k]])
                for d, move in enumerate(moves):
                    self.prior[k + d] += self.before[k] * move
        self.made = []
        for annotation in self.s:
            energies = self.p.affine("output_projection", read_out(readout, self.cfg, hidden, y, annotation))
            self.made.append(torch.tensor(softmax([float(e) for e in energies]), dtype=torch.float64))
        return sum(prior * made for prior, made in zip(self.prior, self.made)).log(), self.prior


def logits(model, cfg, source, previous):
    """Return logits or log-probabilities, attention, upper attention and cost terms of one unpadded pair, by step."""
    p, tags, first = matrices(model).below("decoder"), None, model.encoder.first_feature
    if first is not None:
        tags = [*matrices(model)("encoder.embed_tokens.weight")[source[source >= first]]]
        source = source[source < first]
    decoder = Decoder(model, cfg, encode(model, cfg, source), tags)
    outputs, weights, word_attention, conditions, bridged = [], [], [], [decoder.condition], []
    hard = HardAlignment(p, cfg, decoder.source.annotations) if str(cfg.readout).startswith("hard_") else None
    for number, token in enumerate(previous):
        y = p("embed_tokens.weight")[token] * (number > 0 or not cfg.zero_start)
        hidden = decoder.step(y)
        if hard is not None:
            hard.hear(token)
            output, priors = hard.step(hidden, y, decoder.past.weights)
            outputs.append(output)
            weights.append(torch.tensor(priors, dtype=torch.float64))
            continue
        conditions.append(decoder.condition)
        read = hidden, y, decoder.past.context
        features = read_out(p.below("network.readout" + ".readout" * cfg.copying), cfg, *read)
        outputs.append(p.affine("output_projection", features))
        if cfg.copying:
            of = source, decoder.past.weights
            outputs[-1] = copied(p.below("network.readout"), model, outputs[-1], *read, *of)
        of_tokens, of_words = decoder.past.weights, decoder.word_weights or []
        if str(cfg.encoder_type) == "convolutional" or cfg.attention_via_words_alone:
            of_tokens, of_words = (shared(cfg, of, source.tolist()) if of else [] for of in (of_tokens, of_words))
        weights.append(torch.tensor(of_tokens, dtype=torch.float64))
        word_attention.append(torch.tensor(of_words, dtype=torch.float64))
        if str(cfg.bridge_direct) != "none":
            bridged.append(p("bridge.projection.weight") @ decoder.bridged())
    terms = {}
    if tags is not None:
        terms["feature_attn"] = torch.tensor(decoder.feature_weights, dtype=torch.float64)
    if cfg.decoder_condition:
        terms["conditions"] = torch.stack(conditions)
    if bridged:
        terms["bridged"] = torch.stack(bridged)
    upper = torch.stack(word_attention) if word_attention else None
    return torch.stack(outputs), torch.stack(weights), upper, terms
