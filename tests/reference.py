"""The papers' equations once more, sentence by sentence and word by word, in plain float64 loops.

Nothing here calls the package's own mathematics: only its parameters are read, by name.
"""

import math

import torch


def matrix(model, name):
    return dict(model.named_parameters())[name].detach().double()


def gru(x, h, w, u, b, b_u=None):
    """One GRU step; rows of w and u hold r, z, candidate."""
    n = h.numel()
    wx, uh = w @ x + b, u @ h + (0 if b_u is None else b_u)
    r, z = torch.sigmoid(wx[:n] + uh[:n]), torch.sigmoid(wx[n : 2 * n] + uh[n : 2 * n])
    candidate = torch.tanh(wx[2 * n :] + r * uh[2 * n :])
    return z * h + (1 - z) * candidate


def adaptive_gru(x, h, w, u, b):
    """002 eq. 13-17 with the reset gate after the product; rows of w and u hold r, z, candidate, g."""
    n = h.numel()
    wx, uh = (w @ x + b).split(n), (u @ h).split(n)
    g = torch.sigmoid(wx[3] + uh[3])
    r, z = (torch.sigmoid((1 - g) * wx[k] + g * uh[k]) for k in (0, 1))
    candidate = torch.tanh((1 - g) * wx[2] + g * (r * uh[2]))
    return g * z * h + (1 - z) * candidate


def lstm(x, state, w, u, b):
    n = u.size(1)
    h, c = state[:n], state[n:]
    total = w @ x + u @ h + b
    i, f, g, o = total.split(n)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])


def encode(model, cfg, tokens):
    """Embeddings and annotations of one unpadded sentence, one layer each way."""
    x = matrix(model, "encoder.embed_tokens.weight")[tokens]
    runs = []
    for direction, order in enumerate((range(len(x)), reversed(range(len(x))))):
        if str(cfg.encoder_cell) == "adaptive_gru":
            names = ("inputs.input.weight", "recurrent.weight", "inputs.input.bias")
            step, parameters = adaptive_gru, [f"cells.0.{direction}.{name}" for name in names]
        else:
            suffix = "_l0" + direction * "_reverse"
            step, parameters = gru, [name + suffix for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        parameters = [matrix(model, "encoder.layers.rnn." + name) for name in parameters]
        h, states = torch.zeros(cfg.encoder_hidden_size).double(), {}
        for j in order:
            h = states[j] = step(x[j], h, *parameters)
        runs.append([states[j] for j in range(len(x))])
    return x, [torch.cat([*parts, *([x[j]] if cfg.bridge_source else [])]) for j, parts in enumerate(zip(*runs))]


def logits(model, cfg, source, previous):
    """Logits and attention of one unpadded sentence pair, as lists over target steps."""
    D = "decoder.layers."
    p = lambda name: matrix(model, D + name)  # noqa: E731
    n, half = cfg.decoder_hidden_size, cfg.encoder_hidden_size
    x, s = encode(model, cfg, source)
    first_backward, last_forward = s[0][half : 2 * half], s[-1][:half]
    summary = first_backward if str(cfg.initial_state) == "first" else sum(s) / len(s)
    state = torch.tanh(p("initial.projection.weight") @ summary + p("initial.projection.bias"))
    paths = set(cfg.attention_history.split("+"))
    q = None
    if "state" in paths:
        q = torch.tanh(p("initial_query.projection.weight") @ summary + p("initial_query.projection.bias"))
    sd = torch.cat([last_forward, first_backward])
    c, w = torch.zeros(len(s[0])).double(), None
    conditions = [sd]

    def cell(name, inputs, state):
        weight = torch.cat([p(f"transition.{name}.inputs.{key}.weight") for key in inputs], dim=1)
        first = next(iter(inputs))
        u, b = p(f"transition.{name}.recurrent.weight"), p(f"transition.{name}.inputs.{first}.bias")
        kind = "gru" if name == "query_cell" else str(cfg.decoder_cell)
        step = {"gru": gru, "adaptive_gru": adaptive_gru, "lstm": lstm}[kind]
        return step(torch.cat(list(inputs.values())), state, weight, u, b)

    def attend(query, c, w):
        energies = []
        if w is None:
            m, before = 0.0, [1.0 / len(s)] * len(s)
        else:
            m, before = sum((j + 1) * w[j] for j in range(len(s))), w
        for j in range(len(s)):
            inner = p("transition.attention.query.weight") @ query
            inner = inner + p("transition.attention.key.weight") @ s[j] + p("transition.attention.key.bias")
            index = 0
            if "context" in paths:
                inner = inner + p(f"transition.attention.histories.{index}.projection.weight") @ c
                index += 1
            index += "distance" in paths
            if "convolution" in paths:
                filters = p(f"transition.attention.histories.{index}.filters.weight")[:, 0]  # k x r
                centre = filters.size(1) // 2
                g = sum(
                    filters[:, o] * before[j + o - centre]
                    for o in range(filters.size(1))
                    if 0 <= j + o - centre < len(s)
                )
                inner = inner + p(f"transition.attention.histories.{index}.projection.weight") @ g
            energies.append(torch.dot(p("transition.attention.vector"), torch.tanh(inner)))
        scores = [math.exp(e) for e in energies]
        if "distance" in paths:
            scores = [score / (1 + math.exp(-(j + 1 - m))) for j, score in enumerate(scores)]
        w = [score / sum(scores) for score in scores]
        return sum(w[j] * s[j] for j in range(len(s))), w

    def attended(w):
        return {"attended": x[max(range(len(s)), key=lambda j: w[j])]} if cfg.bridge_target else {}

    outputs, weights, bridged = [], [], []
    for token in previous:
        y = matrix(model, "decoder.embed_tokens.weight")[token]
        first = {"target": y}
        if cfg.input_feed:
            first["previous_context"] = c
        old = state
        if str(cfg.decoder_transition) == "conditional":
            state = cell("before", first, state)
            query = state[:n] if q is None else q
            c, w = attend(query, c, w)
            state = cell("after", {"context": c, **attended(w)}, state)
        else:
            query = state[:n] if q is None else q
            c, w = attend(query, c, w)
            state = cell("after", {**first, "context": c, **attended(w)}, state)
        if q is not None:
            q = cell("query_cell", {"hidden": old[:n], "context": c}, q)
        if cfg.decoder_condition:
            C = "transition.condition."
            gate = p(C + "target.weight") @ y + p(C + "target.bias")
            gate = gate + p(C + "hidden.weight") @ old + p(C + "context.weight") @ c
            sd = torch.sigmoid(gate) * sd
            state = state + torch.tanh(p(C + "output.weight") @ sd)
            conditions.append(sd)
        read = {"hidden": state[:n], "target": y, "context": c}
        parts = {k: p(f"readout.{k}.weight") @ value for k, value in read.items()}
        parts["hidden"] = parts["hidden"] + p("readout.hidden.bias")
        if cfg.adaptive_output:
            W = "readout.weighting."
            others = {k: p(f"{W}{k}.weight") @ value for k, value in read.items()}
            judged, summed = (others, parts) if cfg.adaptive_output_swapped else (parts, others)
            whole = p(W + "whole.weight") @ sum(summed.values()) + p(W + "whole.bias")
            energy = {k: p(W + "score.weight") @ torch.tanh(p(W + "part.weight") @ judged[k] + whole) for k in read}
            norm = sum(e.exp() for e in energy.values())
            total = sum(energy[k].exp() / norm * parts[k] for k in read)
        else:
            total = sum(parts.values())
        if str(cfg.readout) == "maxout":
            k = total.numel() // 2
            features = torch.stack([max(total[i], total[i + k]) for i in range(k)])
        else:
            features = torch.tanh(total)
        projection = matrix(model, "decoder.output_projection.weight")
        outputs.append(projection @ features + matrix(model, "decoder.output_projection.bias"))
        weights.append(torch.tensor(w, dtype=torch.float64))
        if str(cfg.bridge_direct) != "none":
            soft = str(cfg.bridge_direct) == "soft"
            word = sum(w[j] * x[j] for j in range(len(s))) if soft else x[max(range(len(s)), key=lambda j: w[j])]
            bridged.append(matrix(model, "decoder.bridge.projection.weight") @ word)
    terms = {}
    if cfg.decoder_condition:
        terms["conditions"] = torch.stack(conditions)
    if bridged:
        terms["bridged"] = torch.stack(bridged)
    return torch.stack(outputs), torch.stack(weights), terms
