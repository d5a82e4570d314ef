"""Models of Nematus and Marian with random weights, and their equations, word by word in numpy's float64.

They follow the papers (Sennrich et al. 2017, Miceli Barone et al. 2017, Junczys-Dowmunt et al. 2018), with the names
of arrays in the toolkits. A network is a mapping of its sizes and parts, see :data:`PLAIN`.
"""

import json

import numpy as np

PLAIN = dict(
    kind="nematus",  # or marian-nematus, amun, s2s
    norm="none",  # or nematus, marian
    enc_depth=1,
    enc_cells=1,
    dec_cells=2,
    dec_depth=1,
    stacks="other",  # what an upper encoder layer reads: other, own, or both, of layers with one direction
    skip=True,
    deep_context=False,
    tied=False,  # output and target embedding
    one=False,  # source and target embedding
    later=False,  # Nematus's TensorFlow version
    transposed=False,  # Marian's output matrix
)
M, N, K, A = 5, 4, 6, 8  # widths of words, states and readout (M in Marian, and where it is tied), and attention: 2 N


def network(**parts):
    found = {**PLAIN, **parts}
    assert not set(parts) - set(PLAIN)
    return found


def s2s(net):
    return net["kind"] == "s2s"


def encoder_name(net, level, backward, cell, root, norm=""):
    """Return the name of an encoder's array; ``backward`` is the stack's in Marian, the direction's in Nematus."""
    reverse = "_r" * backward
    if not s2s(net):
        drt = f"_drt_{cell}" if cell else ""
        return f"encoder{reverse}{f'_{level}' if level > 1 else ''}_{root}{drt}{norm}"
    if net["stacks"] == "both" and level > 1:
        return f"encoder_l{level}_cell{cell + 1}_{root}{norm}"
    own = f"_l{level}" * (level > 1) + f"_cell{cell + 1}" * (level > 1 or cell > 0)
    return f"encoder_bi{reverse}{own}_{root}{norm}"


def decoder_name(net, level, cell, root, norm=""):
    if s2s(net):
        return f"decoder_cell{cell + 1}_{root}{norm}" if level == 1 else f"decoder_l{level}_cell1_{root}{norm}"
    if net["kind"] == "amun" and root.startswith("gamma"):
        return f"decoder_cell{cell + 1}_{root}"
    if level > 1:
        return f"decoder_{level}_{root}{norm}"
    if cell == 0:
        return f"decoder_{root}{norm}"
    drt = f"_drt_{cell - 1}" if cell > 1 else ""
    return f"decoder_{ {'W': 'Wc', 'Wx': 'Wcx'}.get(root, root + '_nl') }{drt}{norm}".replace(" ", "")


def map_name(net, which, root):
    """Return the name of an array of the readout's maps prev, lstm and ctx, or of the maps state and output."""
    if which == "output":
        return f"decoder_ff_logit_l2_{root}" if s2s(net) else f"ff_logit_{root}"
    if which == "state":
        return f"{'decoder_' * s2s(net)}ff_state_{root}"
    number = ["prev", "lstm", "ctx"].index(which)
    if s2s(net):
        return f"decoder_ff_logit_l1_{root}{number}"
    if root == "gamma":
        return f"ff_logit_l1_gamma{number}"
    return f"ff_logit_{which}_{root}"


def embeddings(net):
    """Return the names of the source and the target embedding."""
    if net["one"]:
        return "Wemb", "Wemb"
    return ("encoder_Wemb", "decoder_Wemb") if s2s(net) else ("Wemb", "Wemb_dec")


def write(net, words, seed=0):
    """Return random arrays of a network with these numbers of source and target words."""
    chance, arrays = np.random.default_rng(seed), {}
    marian_file = net["kind"] != "nematus"

    def add(name, *shape, gain=False):
        assert name not in arrays
        values = chance.normal(size=shape) * 0.7 + gain
        shape = (1, *shape) if marian_file and len(shape) == 1 else shape
        arrays[name] = values.reshape(shape).astype(np.float32)

    def add_cell(name, width, bias=True):
        add(name("U"), N, 2 * N)
        add(name("Ux"), N, N)
        if bias:
            add(name("b"), 2 * N)
            add(name("bx"), N)
        if width:
            add(name("W"), width, 2 * N)
            add(name("Wx"), width, N)
        for root, size in [("U", 2 * N), ("Ux", N), *[("W", 2 * N), ("Wx", N)] * (width > 0)]:
            if net["norm"] == "nematus":
                add(name(root, "_lns"), size, gain=True)
                add(name(root, "_lnb"), size)
        if net["norm"] == "marian":
            add(name("gamma2"), 3 * N, gain=True)
            if width:
                add(name("gamma1"), 3 * N, gain=True)

    def add_map(which, width, out):
        add(map_name(net, which, "W"), width, out)
        add(map_name(net, which, "b"), out)
        if net["norm"] == "nematus":
            add(map_name(net, which, "ln_s"), out, gain=True)
            add(map_name(net, which, "ln_b"), out)
        if net["norm"] == "marian":
            add(map_name(net, which, "gamma"), out, gain=True)

    out = M if net["tied"] or marian_file else K
    for name, count in dict(zip(embeddings(net), words, strict=True)).items():
        add(name, count, M)
    for level in range(1, net["enc_depth"] + 1):
        both = net["stacks"] == "both" and level > 1
        for backward in (False,) if both else (False, True):
            for cell in range(net["enc_cells"]):
                width = 0 if cell else M if level == 1 else 2 * N if both and level == 2 else N
                add_cell(
                    lambda root, norm="", place=(level, backward, cell): encoder_name(net, *place, root, norm),
                    width,
                    bias=not (net["later"] and cell),
                )
    context = annotation_width(net)
    for cell in range(net["dec_cells"]):
        width = {0: M, 1: context}.get(cell, 0)
        add_cell(lambda root, norm="", cell=cell: decoder_name(net, 1, cell, root, norm), width)
    for level in range(2, net["dec_depth"] + 1):
        width = N + context * net["deep_context"]
        add_cell(lambda root, norm="", level=level: decoder_name(net, level, 0, root, norm), width)
    add("decoder_W_comb_att", N, context)
    add("decoder_Wc_att", context, context)
    add("decoder_b_att", context)
    add("decoder_U_att", context, 1)
    if net["norm"] == "nematus":
        for root in ("Wc_att", "W_comb_att"):
            add(f"decoder_{root}_lns", context, gain=True)
            add(f"decoder_{root}_lnb", context)
    if net["norm"] == "marian":
        add("decoder_att_gamma1", context, gain=True)
        add("decoder_att_gamma2", context, gain=True)
    add_map("state", context, N)
    add_map("prev", M, out)
    add_map("lstm", N, out)
    add_map("ctx", context, out)
    if not net["tied"]:
        shape = (words[1], out) if net["transposed"] else (out, words[1])
        add(map_name(net, "output", "Wt" if net["transposed"] else "W"), *shape)
    add(map_name(net, "output", "b"), words[1])
    return arrays


def annotation_width(net):
    return N if net["stacks"] == "both" and net["enc_depth"] > 1 else 2 * N


def marian_options(net, words):
    """Return the options that Marian stores for a network with these numbers of source and target words."""
    types = {"other": "alternating", "own": "bidirectional", "both": "bi-unidirectional"}
    cell = "gru-nematus" if net["kind"] == "marian-nematus" else "gru"
    return {
        "type": net["kind"].removeprefix("marian-"),
        "dim-vocabs": [*words],
        "dim-emb": M,
        "dim-rnn": N,
        "enc-type": types[net["stacks"]] if net["enc_depth"] > 1 else "bidirectional",
        "enc-cell": cell,
        "dec-cell": cell,
        "enc-depth": net["enc_depth"],
        "enc-cell-depth": net["enc_cells"],
        "dec-depth": net["dec_depth"],
        "dec-cell-base-depth": net["dec_cells"],
        "dec-cell-high-depth": 1,
        "skip": net["skip"] and max(net["enc_depth"], net["dec_depth"]) > 1,
        "layer-normalization": net["norm"] != "none",
        "right-left": False,
        "input-types": [],
        "special-vocab": [],
        "tied-embeddings": net["tied"] and not net["one"],
        "tied-embeddings-src": net["one"] and not net["tied"],
        "tied-embeddings-all": net["one"] and net["tied"],
        "ulr": False,
        "lemma-dim-emb": 0,
        "version": "v1.9.0",
    }


def nematus_options(net):
    """Return the options of a network that Nematus stores in a separate file."""
    later = {"embedding_size": M, "rnn_enc_depth": net["enc_depth"], "model_type": "rnn", "softmax_mixture_size": 1}
    early = {"dim_word": M, "enc_depth": net["enc_depth"], "encoder": "gru", "decoder": "gru_cond", "factors": 1}
    ties = {"tie_decoder_embeddings": net["tied"], "tie_encoder_decoder_embeddings": net["one"]}
    return {**later, **ties} if net["later"] else {**early, **ties, "model_version": 0.2, "use_dropout": True}


def save(net, arrays, path):
    """Write the files of the toolkit, and return the path of the model."""
    path = f"{path}.npz"
    if net["kind"] == "nematus":
        np.savez(path, **arrays, decoder_c_tt=np.zeros(1, "float32"), uidx=np.int64(7), history_errs=np.zeros(2))
        with open(f"{path}.json", "w") as stream:
            json.dump(nematus_options(net), stream)
        return path
    words = [len(arrays[name]) for name in embeddings(net)]
    said = json.dumps(marian_options(net, words)).encode()
    special = {"special:model.yml": np.frombuffer(said + bytes(256 - len(said) % 256), dtype=np.int8)}
    dummy = {} if s2s(net) else {"decoder_c_tt": np.zeros((1, 0), "float32")}
    np.savez(path, **arrays, **special, **dummy)
    return path


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Reference:
    """The probabilities of a network, for one sentence."""

    def __init__(self, net, arrays):
        self.net = net
        self.arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self.epsilon = 1e-9 if net["norm"] == "marian" else 1e-5

    def __call__(self, name):
        array = self.arrays[name]
        return array.reshape(-1) if 1 in array.shape else array

    def normed(self, x, gain, bias=0):
        mean = sum(x) / len(x)
        variance = sum((one - mean) ** 2 for one in x) / len(x)
        return gain * (x - mean) / np.sqrt(variance + self.epsilon) + bias

    def step(self, name, x, h, inside):
        """Return the next state of a GRU; if ``inside``, the reset gate scales the bias of the candidate, too."""
        there = name("b") in self.arrays
        b, bx = (self(name("b")), self(name("bx"))) if there else (np.zeros(2 * N), np.zeros(N))
        uh, uxh = h @ self(name("U")), h @ self(name("Ux"))
        wx = np.zeros(2 * N) if x is None else x @ self(name("W"))
        wxx = np.zeros(N) if x is None else x @ self(name("Wx"))
        if self.net["norm"] == "marian":  # normalises all three together, and adds the bias afterwards
            recurrent = self.normed(np.concatenate([uh, uxh]), self(name("gamma2")))
            uh, uxh = recurrent[: 2 * N], recurrent[2 * N :]
            if x is not None:
                read = self.normed(np.concatenate([wx, wxx]), self(name("gamma1")))
                wx, wxx = read[: 2 * N], read[2 * N :]
            wx, uxh, wxx = (wx + b, uxh + bx, wxx) if inside else (wx + b, uxh, wxx + bx)
        else:
            if inside:
                uh, uxh = uh + b, uxh + bx
            elif x is not None:
                wx, wxx = wx + b, wxx + bx
            if self.net["norm"] == "nematus":
                uh, uxh = (self.normed_as(name, root, part) for root, part in (("U", uh), ("Ux", uxh)))
                if x is not None:
                    wx, wxx = (self.normed_as(name, root, part) for root, part in (("W", wx), ("Wx", wxx)))
            if x is None and not inside:
                wx, wxx = wx + b, wxx + bx
        r, u = sigmoid(wx + uh)[:N], sigmoid(wx + uh)[N:]
        return u * h + (1 - u) * np.tanh(wxx + r * uxh)

    def normed_as(self, name, root, x):
        return self.normed(x, self(name(root, "_lns")), self(name(root, "_lnb")))

    def mapped(self, which, x):
        name = lambda root: map_name(self.net, which, root)  # noqa: E731
        total, b = x @ self(name("W")), self(name("b"))
        if self.net["norm"] == "marian":
            return self.normed(total, self(name("gamma")), b)
        if self.net["norm"] == "nematus":
            return self.normed(total + b, self(name("ln_s")), self(name("ln_b")))
        return total + b

    def run(self, level, stack, inputs, backwards):
        """Return the states of an encoder layer in the order of the words."""
        h, states = np.zeros(N), [None] * len(inputs)
        for j in range(len(inputs))[:: -1 if backwards else 1]:
            for cell in range(self.net["enc_cells"]):
                name = lambda root, norm="", cell=cell: encoder_name(self.net, level, stack, cell, root, norm)  # noqa: E731
                h = self.step(name, None if cell else inputs[j], h, False)
            states[j] = h
        return states

    def encode(self, words):
        net, depth = self.net, self.net["enc_depth"]
        x = [self(embeddings(net)[0])[word] for word in words]
        skip = lambda level: net["skip"] and level > 1  # noqa: E731
        if net["kind"] == "nematus":
            ahead, back = self.run(1, False, x, False), self.run(1, True, x, True)
            for level in range(2, depth + 1):
                read = back, ahead  # each direction reads the other one
                ahead = [s + i for s, i in zip(self.run(level, False, read[0], False), read[0])]
                back = [s + i for s, i in zip(self.run(level, True, read[1], True), read[1])]
            return [np.concatenate(pair) for pair in zip(ahead, back)]
        stacks = []
        uni = net["stacks"] == "both"
        for stack in (False, True):
            states = x
            for level in range(1, (1 if uni else depth) + 1):
                turned = net["stacks"] == "other" and level % 2 == 0
                out = self.run(level, stack, states, stack != turned)
                states = [s + i for s, i in zip(out, states)] if skip(level) else out
            stacks.append(states)
        states = [np.concatenate(pair) for pair in zip(*stacks)]
        for level in range(2, depth + 1) if uni else ():
            out = self.run(level, False, states, False)
            states = [s + i for s, i in zip(out, states)] if skip(level - 1) else out
        return states

    def score(self, words, previous):
        """Return log-probabilities of the next word, at the start and after each of the previous words."""
        net = self.net
        s = self.encode(words)
        h = np.tanh(self.mapped("state", sum(s) / len(s)))
        above = [h] * (net["dec_depth"] - 1)
        embedding = self(embeddings(net)[1])
        keys = [a @ self("decoder_Wc_att") for a in s]
        if net["norm"] == "marian":
            keys = [self.normed(key, self("decoder_att_gamma1"), self("decoder_b_att")) for key in keys]
        else:
            keys = [key + self("decoder_b_att") for key in keys]
            if net["norm"] == "nematus":
                keys = [self.normed(key, self("decoder_Wc_att_lns"), self("decoder_Wc_att_lnb")) for key in keys]
        found = []
        for word in [None, *previous]:
            y = np.zeros(M) if word is None else embedding[word]
            h = self.step(lambda root, norm="": decoder_name(net, 1, 0, root, norm), y, h, False)
            query = h @ self("decoder_W_comb_att")
            if net["norm"] == "marian":
                query = self.normed(query, self("decoder_att_gamma2"))
            if net["norm"] == "nematus":
                query = self.normed(query, self("decoder_W_comb_att_lns"), self("decoder_W_comb_att_lnb"))
            energies = [np.tanh(query + key) @ self("decoder_U_att") for key in keys]
            weights = np.exp(energies) / sum(np.exp(energies))
            c = sum(w * a for w, a in zip(weights, s))
            for cell in range(1, net["dec_cells"]):
                name = lambda root, norm="", cell=cell: decoder_name(net, 1, cell, root, norm)  # noqa: E731
                h = self.step(name, c if cell == 1 else None, h, True)
            top = h
            for level in range(2, net["dec_depth"] + 1):
                name = lambda root, norm="", level=level: decoder_name(net, level, 0, root, norm)  # noqa: E731
                read = np.concatenate([top, c]) if net["deep_context"] else top
                above[level - 2] = self.step(name, read, above[level - 2], net["later"])
                top = above[level - 2] + (top if net["skip"] else 0)
            t = np.tanh(self.mapped("lstm", top) + self.mapped("prev", y) + self.mapped("ctx", c))
            if net["tied"]:
                matrix = embedding.T
            elif net["transposed"]:
                matrix = self(map_name(net, "output", "Wt")).T
            else:
                matrix = self(map_name(net, "output", "W"))
            logits = t @ matrix + self(map_name(net, "output", "b"))
            found.append(logits - np.log(sum(np.exp(logits - max(logits)))) - max(logits))
        return np.array(found)
