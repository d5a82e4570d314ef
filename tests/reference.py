"""The papers' equations once more, sentence by sentence and word by word, in plain float64 loops.

Nothing here calls the package's own mathematics: only its parameters are read, by name.
"""

import functools
import math

import torch
from conftest import SPACE


def matrix(model, name):
    return dict(model.named_parameters(remove_duplicate=False))[name].detach().double()


def plain(side, sums):
    return sums


def normalised(values, gain, bias):
    """Ba et al. 2016, with Nematus's 1e-5."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return gain * (values - mean) / torch.sqrt(variance + 1e-5) + bias


def optional_norm(model, name, parts=None):
    """Normalises parts of a row, if the model has the norm of this name."""
    if name + ".weight" not in dict(model.named_parameters()):
        return lambda values: values
    gain, bias = matrix(model, name + ".weight"), matrix(model, name + ".bias")

    def norm(values):
        widths = parts or [len(values)]
        return torch.cat([normalised(*rows) for rows in zip(*(v.split(widths) for v in (values, gain, bias)))])

    return norm


def cell_norm(model, prefix, kind, n):
    """Of a cell's sums: the gates of a GRU together, its candidate, and g; all four of an LSTM."""
    parts = [k * n for k in {"gru": (2, 1), "lstm": (4,)}.get(kind, (2, 1, 1))]
    return lambda side, sums: optional_norm(model, f"{prefix}.{side}_norm", parts)(sums)


def gru(x, h, w, u, b, b_u=None, norm=plain):
    """One GRU step; rows of w and u hold r, z, candidate."""
    n = h.numel()
    wx, uh = norm("input", w @ x + b), norm("recurrent", u @ h + (0 if b_u is None else b_u))
    r, z = torch.sigmoid(wx[:n] + uh[:n]), torch.sigmoid(wx[n : 2 * n] + uh[n : 2 * n])
    candidate = torch.tanh(wx[2 * n :] + r * uh[2 * n :])
    return z * h + (1 - z) * candidate


def adaptive_gru(x, h, w, u, b, norm=plain, carry=1):
    """Li et al. 2018 eq. 13-17 with the reset gate after the product; rows of w and u hold r, z, candidate, g."""
    n = h.numel()
    wx, uh = norm("input", w @ x + b).split(n), norm("recurrent", u @ h).split(n)
    g = torch.sigmoid(wx[3] + uh[3])
    r, z = (torch.sigmoid((1 - g) * wx[k] + g * uh[k]) for k in (0, 1))
    candidate = torch.tanh((1 - g) * wx[2] + g * (r * uh[2]))
    return carry * g * z * h + (1 - z) * candidate


def lstm(x, state, w, u, b, norm=plain):
    n = u.size(1)
    h, c = state[:n], state[n:]
    total = norm("input", w @ x + b) + norm("recurrent", u @ h)
    i, f, g, o = total.split(n)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])


STEPS = {"gru": gru, "adaptive_gru": adaptive_gru, "doubled_gru": adaptive_gru, "lstm": lstm}
STEPS["doubled_carry_gru"] = functools.partial(adaptive_gru, carry=2)


def depth(model, name):
    """How many cells there are one after another."""
    numbers = [n[len(name) :].split(".")[2] for n, _ in model.named_parameters() if n.startswith(name + ".cells.")]
    return 1 + max(map(int, numbers), default=0)


def further(model, name, kind, state):
    """One step of a cell that reads only the state."""
    u, b = matrix(model, name + ".recurrent.weight"), matrix(model, name + ".bias")
    norm = cell_norm(model, name, kind, u.size(1))
    return STEPS[kind](torch.zeros(1).double(), state, torch.zeros(len(b), 1).double(), u, b, norm=norm)


def softmax(energies):
    return [math.exp(e) / sum(math.exp(other) for other in energies) for e in energies]


def sparse(shares):
    """Of energies, weights that add up to 1 where a threshold is subtracted from the energies, found by halving."""

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


def recurrence(model, prefix, kind, layer, direction=0):
    """One step of a layer, from an input and a state to a state, and the width of its output."""
    names = {name for name, _ in model.named_parameters()}
    prefix = f"{prefix}.layers.{layer}"
    p = lambda name: matrix(model, f"{prefix}.{name}")  # noqa: E731
    name = f"{prefix}.cells.{direction}"
    deep = depth(model, name)
    name += ".cells.0" if deep > 1 else ""
    if any(parameter.startswith(name) for parameter in names):
        parts = [name[len(prefix) + 1 :] + part for part in (".inputs.input.", ".recurrent.")]
        w, u, b = p(parts[0] + "weight"), p(parts[1] + "weight"), [p(parts[0] + "bias")]
    else:
        suffix = "_l0" + direction * "_reverse"
        w, u, *b = (p(name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    if kind == "lstm":
        b = [sum(b)]
    n = u.size(1)

    def step(x, state):
        state = STEPS[kind](x, state, w, u, *b, norm=cell_norm(model, name, kind, n))
        for k in range(1, deep):
            state = further(model, f"{name[:-1]}{k}", kind, state)
        return state

    return step, n


def layers(model, prefix, kind, inputs, count, bidirectional=0, residuals=0):
    """The outputs of stacked layers, and the last output of each direction of the top one."""
    for layer in range(count):
        runs, last = [], []
        for direction in range(2 if layer < bidirectional else 1):
            step, n = recurrence(model, prefix, kind, layer, direction)
            state, outputs = torch.zeros(2 * n if kind == "lstm" else n).double(), {}
            for j in range(len(inputs))[:: -1 if direction else 1]:
                outputs[j] = state = step(inputs[j], state)
            last.append(state[:n])
            runs.append([outputs[j][:n] for j in range(len(inputs))])
        outputs = [torch.cat(parts) for parts in zip(*runs)]
        inputs = [s + x for s, x in zip(outputs, inputs)] if 0 < residuals <= layer + 1 else outputs
    return inputs, last


def convolved(model, cfg, x):
    """Segments of characters: maxima of filters of width 1, 2, ... with zeros beside the sentence, and highways."""
    E = "encoder.network."
    found = [[] for _ in x]
    for number, width in enumerate(w for w, many in enumerate(map(int, cfg.encoder_filters.split("-")), 1) if many):
        weight = matrix(model, f"{E}convolutions.{number}.weight")  # filters x m x width
        bias = matrix(model, f"{E}convolutions.{number}.bias")
        for j in range(len(x)):
            places = [(o, j - width // 2 + o) for o in range(width)]
            total = bias + sum(weight[:, :, o] @ x[place] for o, place in places if 0 <= place < len(x))
            found[j].append(total.clamp(min=0))
    characters = [torch.cat(parts) for parts in found]
    segments = []
    for start in range(0, len(x), cfg.encoder_pooling):
        s = torch.stack(characters[start : start + cfg.encoder_pooling]).amax(0)
        for k in range(cfg.encoder_highway_layers):
            p = lambda name: matrix(model, f"{E}highways.{k}.{name}")  # noqa: B023, E731
            t = torch.sigmoid(p("transform.weight") @ s + p("transform.bias"))
            s = t * (p("candidate.weight") @ s + p("candidate.bias")).clamp(min=0) + (1 - t) * s
        segments.append(s)
    return segments


def shared(cfg, w, tokens):
    """Each character's even share of its segment's weight, or of its word's."""
    if str(cfg.encoder_type) == "hierarchical":
        segment = [sum(token == SPACE for token in tokens[:j]) for j in range(len(tokens))]
    else:
        segment = [j // cfg.encoder_pooling for j in range(len(tokens))]
    return [w[g] / segment.count(g) for g in segment]


def encode(model, cfg, tokens):
    """Of one unpadded sentence: embeddings, annotations, the higher level's, and each direction's last state."""
    x = inputs = matrix(model, "encoder.embed_tokens.weight")[tokens]
    kind, count = str(cfg.encoder_cell), cfg.encoder_layers
    both, r = cfg.encoder_bidirectional_layers or count, cfg.residuals
    E = "encoder.network."
    if str(cfg.encoder_type) == "convolutional":
        E, inputs = E + "above.", convolved(model, cfg, x)
    if str(cfg.encoder_type) == "hierarchical":
        s, _ = layers(model, E + "characters", str(cfg.encoder_char_cell), x, 1)
        words = [s[j] for j, token in enumerate(tokens.tolist()) if token in (SPACE, 2)]
        upper, last = layers(model, E + "words", kind, words, count, both, r)
        if cfg.attention_via_words_alone:
            return x, upper, None, last
    elif cfg.attention_via:
        s, _ = layers(model, E + "rnn", kind, inputs, 1, 1)
        upper, last = layers(model, E + "upper", kind, s, count - 1, both - 1, max(0, r - 1))
    else:
        (s, last), upper = layers(model, E + "rnn", kind, inputs, count, both, r), None
    return x, [torch.cat([s[j], *([x[j]] if cfg.bridge_source else [])]) for j in range(len(s))], upper, last


def logits(model, cfg, source, previous):
    """Logits, attention and cost terms of one unpadded sentence pair, over target steps."""
    D = "decoder.network."
    p = lambda name: matrix(model, D + name)  # noqa: E731
    n = cfg.decoder_hidden_size
    x, s, upper, last = encode(model, cfg, source)
    top = s if upper is None else upper
    summary = sum(top) / len(top) if str(cfg.initial_state) == "mean" else last[-1]
    count = cfg.decoder_layers
    norm = lambda name, values: optional_norm(model, D + name)(values)  # noqa: E731
    late, stacked = (str(cfg.decoder_transition) == name for name in ("late", "stacked"))

    def initial(name):
        state = norm(f"{name}.norm", p(f"{name}.projection.weight") @ summary + p(f"{name}.projection.bias"))
        return state if str(cfg.initial_state) == "linear" else torch.tanh(state)

    states = [initial(f"initial.{k}" if cfg.initial_state_per_layer else "initial") for k in range(count)]
    above = [] if late or stacked else states[1:]
    state = torch.cat(states) if late or stacked else states[0]
    paths = set(cfg.attention_history.split("+"))
    q = None
    if "state" in paths:
        q = initial("initial_query")
    sd = torch.cat(last)
    c, w = torch.zeros(len(s[0]) + (0 if upper is None else len(upper[0]))).double(), None
    conditions = [sd]
    covered = [0.0] * len(s)
    coverage_states = [torch.zeros(cfg.attention_coverage_dim).double()] * len(s)

    def cell(name, inputs, state):
        deep = depth(model, f"{D}transition.{name}") if name in ("before", "after") or ".cells." in name else 1
        first = name + ".cells.0" if deep > 1 else name
        gated = name.startswith("after") and str(cfg.context_gate) != "none"
        state = gated_cell(first, inputs, state) if gated else plain_cell(first, inputs, state)
        for k in range(1, deep):
            state = further(model, f"{D}transition.{name}.cells.{k}", str(cfg.decoder_cell), state)
        return state

    def plain_cell(name, inputs, state):
        weight = torch.cat([p(f"transition.{name}.inputs.{key}.weight") for key in inputs], dim=1)
        first = next(iter(inputs))
        u, b = p(f"transition.{name}.recurrent.weight"), p(f"transition.{name}.inputs.{first}.bias")
        kind = "gru" if name == "query_cell" else str(cfg.decoder_cell)
        norms = cell_norm(model, f"{D}transition.{name}", kind, u.size(1))
        return STEPS[kind](torch.cat(list(inputs.values())), state, weight, u, b, norm=norms)

    def gated_cell(name, inputs, h):
        """Tu et al. 2017; rows of each input's matrix hold the cell's sums and z."""
        C, kind = f"transition.{name}.", str(cfg.decoder_cell)
        sums = {"source": torch.zeros(1).double(), "target": torch.zeros(1).double()}
        for key, value in inputs.items():
            side = "source" if key in ("context", "attended") else "target"
            sums[side] = sums[side] + p(f"{C}{side}.{key}.weight") @ value
        parts = [k * n for k in {"gru": (2, 1, 1), "adaptive_gru": (2, 1, 1, 1)}[kind]]
        sums = {
            side: optional_norm(model, f"{D}{C}{side}_norm", parts)(total) if len(total) > 1 else total
            for side, total in sums.items()
        }
        z = sums["source"][-n:] + sums["target"][-n:] + p(C + "gate.weight") @ h + p(C + "gate.bias")
        z = torch.sigmoid(z)
        of_source = 1 if str(cfg.context_gate) == "target" else z
        of_target = {"source": 1, "target": z, "both": 1 - z}[str(cfg.context_gate)]
        norm = cell_norm(model, f"{D}{C}cell", kind, n)
        u, b = p(C + "cell.recurrent.weight"), p(C + "cell.bias")
        if str(cfg.decoder_transition) == "conditional":
            h, of_target = of_target * h, 1
        blocks = lambda side, share: torch.cat([share * part for part in sums[side][:-n].split(n)])  # noqa: E731
        x = blocks("source", of_source) + b
        if len(sums["target"]) > 1:
            x = x + blocks("target", of_target)
        recurrent = torch.cat([of_target * part for part in norm("recurrent", u @ h).split(n)])
        sums = {"input": x, "recurrent": recurrent}
        return STEPS[kind](x, h, torch.eye(len(x)).double(), u, 0, norm=lambda side, _: sums[side])

    def attend(query, c, w):
        if upper is None:
            return *attend_to(s, "transition.attention", query, c, w, paths, window=str(cfg.attention_window)), None
        higher, word_weights = attend_to(upper, "transition.attention.upper", query, c, w, set())
        guide = None if cfg.attention_via_unguided else higher
        lower, w = attend_to(s, "transition.attention.lower", query, c, w, paths, guide, str(cfg.attention_window))
        return torch.cat([higher, lower]), w, word_weights

    def remember(w, h):
        for j in range(len(s)):
            covered[j] = covered[j] + w[j]
            if "coverage_gru" in paths:
                A = f"transition.attention{'' if upper is None else '.lower'}.histories.coverage_gru.cell."
                read = {"annotation": s[j], "hidden": h, "weight": torch.tensor([w[j]], dtype=torch.float64)}
                weight = torch.cat([p(f"{A}inputs.{key}.weight") for key in read], dim=1)
                b = p(A + "inputs.annotation.bias")
                coverage_states[j] = gru(
                    torch.cat(list(read.values())), coverage_states[j], weight, p(A + "recurrent.weight"), b
                )

    def linear(name, value):
        """Projected, unless a score leaves it as it is."""
        if D + name + ".weight" not in dict(model.named_parameters()):
            return value
        value = p(name + ".weight") @ value
        return value + p(name + ".bias") if D + name + ".bias" in dict(model.named_parameters()) else value

    def attend_to(s, A, query, c, w, paths, guide=None, window="none"):
        score = str(cfg.attention_score)
        heads = cfg.attention_heads if score == "multihead" else 1
        energies = [[] for _ in range(heads)]
        if w is None:
            m, before = 0.0, [1.0 / len(s)] * len(s)
        else:
            m, before = sum((j + 1) * w[j] for j in range(len(s))), w
        asked = norm(f"{A}.query_norm", linear(f"{A}.query", query))
        if guide is not None:
            asked = asked + p(f"{A}.guide.weight") @ guide
        elif cfg.attention_reads_target and not A.endswith("lower"):
            asked = asked + p("transition.query_word.weight") @ y
        if "context" in paths:
            asked = asked + p(f"{A}.histories.context.projection.weight") @ c
        for j in range(len(s)):
            key = norm(f"{A}.key_norm", linear(f"{A}.key", s[j]))
            if "convolution" in paths:
                filters = p(f"{A}.histories.convolution.filters.weight")[:, 0]  # k x r
                centre = filters.size(1) // 2
                g = sum(
                    filters[:, o] * before[j + o - centre]
                    for o in range(filters.size(1))
                    if 0 <= j + o - centre < len(s)
                )
                key = key + p(f"{A}.histories.convolution.projection.weight") @ g
            if "coverage" in paths:
                key = key + p(f"{A}.histories.coverage.projection.weight")[:, 0] * covered[j]
            if "fertility" in paths:
                fertility = 2 / (1 + torch.exp(-p(f"{A}.histories.fertility.fertility.weight")[0] @ s[j]))
                key = key + p(f"{A}.histories.fertility.projection.weight")[:, 0] * covered[j] / fertility
            if "coverage_gru" in paths:
                key = key + p(f"{A}.histories.coverage_gru.projection.weight") @ coverage_states[j]
            for own, one, other in zip(energies, asked.chunk(heads), key.chunk(heads)):
                if score == "additive":
                    energy = torch.dot(p(f"{A}.vector"), torch.tanh(one + other))
                elif score in ("scaled", "multihead"):
                    energy = torch.dot(one, other) / math.sqrt(len(one))
                else:
                    energy = torch.dot(one, other)
                own.append(float(energy))
                if "distance" in paths:
                    own[-1] -= math.log(1 + math.exp(-(j + 1 - m)))
        looks, shares = looked_at(A, query, len(s), window)
        weights = []
        for own in energies:
            found = NORMALISERS[str(cfg.attention_normalizer)]([own[j] / cfg.attention_temperature for j in looks])
            found = [share * f for share, f in zip(shares, found)]
            weights.append([found[looks.index(j)] / sum(found) if j in looks else 0.0 for j in range(len(s))])
        mean = [sum(own[j] for own in weights) / heads for j in range(len(s))]
        if score != "multihead":
            return sum(mean[j] * s[j] for j in range(len(s))), mean
        values = [linear(f"{A}.value", annotation).chunk(heads) for annotation in s]
        contexts = [sum(own[j] * values[j][k] for j in range(len(s))) for k, own in enumerate(weights)]
        return linear(f"{A}.output", torch.cat(contexts)), mean

    def looked_at(A, query, length, window):
        """Positions from 0, and by what their weights are multiplied."""
        reach = cfg.attention_window_width
        if window == "none":
            return list(range(length)), [1.0] * length
        if window == "monotone":
            centre = min(len(outputs) + 1, length)
        else:
            place = torch.dot(p(f"{A}.window.vector"), torch.tanh(linear(f"{A}.window.query", query)))
            centre = length / (1 + math.exp(-float(place)))
        looks = [j for j in range(length) if centre - reach <= j + 1 <= centre + reach]
        if window == "monotone":
            return looks, [1.0] * length
        return looks, [math.exp(-((j + 1 - centre) ** 2) / (2 * (reach / 2) ** 2)) for j in looks]

    def attended(w):
        return {"attended": x[max(range(len(s)), key=lambda j: w[j])]} if cfg.bridge_target else {}

    def top_of(parts):
        """The output of states of layers one above the other."""
        output = parts[0][:n]
        for k in range(1, len(parts)):
            output = parts[k][:n] + (output if 0 < cfg.residuals <= k + 1 else 0)
        return output

    outputs, weights, word_attention, bridged = [], [], [], []
    for token in previous:
        y = matrix(model, "decoder.embed_tokens.weight")[token]
        first = {"target": y}
        if cfg.input_feed:
            first["previous_context"] = c
        old, hidden = state, None
        before = top_of(old.split(len(old) // count)) if late or stacked else old[:n]
        if late or stacked:
            parts, context = list(state.split(len(state) // count)), {}
            if stacked:
                c, w, word_weights = attend(before if q is None else q, c, w)
                first = {**first, "context": c, **attended(w)}
                context = {"context": c} if cfg.context_to_layers else {}
            name = "after" if stacked else "before"
            parts[0] = cell(f"{name}.cells.0" if count > 1 else name, first, parts[0])
            for k in range(1, count):
                parts[k] = cell(f"{name}.cells.{k}", {"below": top_of(parts[:k]), **context}, parts[k])
            state, hidden = torch.cat(parts), top_of(parts)
            if late:
                c, w, word_weights = attend(hidden if q is None else q, c, w)
            if cfg.readout_all_layers:
                hidden = torch.cat([top_of(parts[: k + 1]) for k in range(count)])
        elif str(cfg.decoder_transition) == "conditional":
            state = cell("before", first, state)
            query = state[:n] if q is None else q
            c, w, word_weights = attend(query, c, w)
            state = cell("after", {"context": c, **attended(w)}, state)
        else:
            query = state[:n] if q is None else q
            c, w, word_weights = attend(query, c, w)
            state = cell("after", {**first, "context": c, **attended(w)}, state)
        remember(w, before)
        if q is not None:
            q = cell("query_cell", {"hidden": before, "context": c}, q)
        if cfg.decoder_condition:
            C = "transition.condition."
            gate = p(C + "target.weight") @ y + p(C + "target.bias")
            gate = gate + p(C + "hidden.weight") @ old + p(C + "context.weight") @ c
            sd = torch.sigmoid(gate) * sd
            state = state + torch.tanh(p(C + "output.weight") @ sd)
            conditions.append(sd)
        hidden = state[:n] if hidden is None else hidden
        for k in range(len(above)):
            step, _ = recurrence(model, D + "above.rnn", str(cfg.decoder_cell), k)
            above[k] = step(torch.cat([hidden, c]) if cfg.context_to_layers else hidden, above[k])
            hidden = above[k][:n] + (hidden if 0 < cfg.residuals <= k + 2 else 0)
        read = {"hidden": hidden, "target": y, "context": c}
        parts = {k: p(f"readout.{k}.weight") @ value for k, value in read.items()}
        parts["hidden"] = parts["hidden"] + p("readout.hidden.bias")
        parts = {k: norm(f"readout.{k}_norm", value) for k, value in parts.items()}
        if cfg.adaptive_output:
            W = "readout.weighting."
            others = {k: p(f"{W}{k}.weight") @ value for k, value in read.items()}
            judged, summed = (others, parts) if cfg.adaptive_output_swapped else (parts, others)
            whole = p(W + "whole.weight") @ sum(summed.values()) + p(W + "whole.bias")
            energy = {k: p(W + "score.weight") @ torch.tanh(p(W + "part.weight") @ judged[k] + whole) for k in read}
            whole = sum(e.exp() for e in energy.values())
            total = sum(energy[k].exp() / whole * parts[k] for k in read)
        else:
            total = sum(parts.values())
        if str(cfg.readout) == "maxout":
            k = total.numel() // 2
            features = torch.stack([max(total[i], total[i + k]) for i in range(k)])
        elif str(cfg.readout) == "relu":
            features = torch.relu(p("readout.second.weight") @ torch.relu(total) + p("readout.second.bias"))
        else:
            features = torch.tanh(total)
        projection = matrix(model, "decoder.output_projection.weight")
        outputs.append(projection @ features + matrix(model, "decoder.output_projection.bias"))
        of_tokens, of_words = w, word_weights or []
        if str(cfg.encoder_type) == "convolutional" or cfg.attention_via_words_alone:
            of_tokens, of_words = (shared(cfg, of, source.tolist()) if of else [] for of in (w, of_words))
        weights.append(torch.tensor(of_tokens, dtype=torch.float64))
        word_attention.append(torch.tensor(of_words, dtype=torch.float64))
        if str(cfg.bridge_direct) != "none":
            soft = str(cfg.bridge_direct) == "soft"
            word = sum(w[j] * x[j] for j in range(len(s))) if soft else x[max(range(len(s)), key=lambda j: w[j])]
            bridged.append(matrix(model, "decoder.bridge.projection.weight") @ word)
    terms = {}
    if cfg.decoder_condition:
        terms["conditions"] = torch.stack(conditions)
    if bridged:
        terms["bridged"] = torch.stack(bridged)
    return torch.stack(outputs), torch.stack(weights), torch.stack(word_attention), terms
