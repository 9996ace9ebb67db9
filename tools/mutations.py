"""Details of the model that must not go unnoticed if they are wrong.

Each entry changes one detail of the code, and names the tests that must then fail. `tools/mutate.py` tries them.
"""

from mutation import Mutation
from mutation import mutation as _m
from mutations_memory import MEMORY

WINDOWS = ("tests/model/test_windows.py",)
DELTA = ("tests/ops/test_gdn.py",)
SELECT = ("tests/ops/test_qsa.py",)
STEPS = ("tests/model/test_parity.py",)
MTP = ("tests/model/test_mtp.py",)
SHARES = ("tests/experts/test_shares.py",)
WAITING = ("tests/experts/test_waiting.py",)
COMPUTE = ("tests/experts/test_compute.py", "-k", "judges")
POLICY = ("tests/engine/test_policy.py",)
MEASURED = ("tests/engine/test_measured.py",)
GUESSER = ("tests/engine/test_guesser.py",)
LOOKUP = ("tests/engine/test_lookup.py",)
DRAFTS = "engine/drafting/"
STORED = ("tests/model/test_stored_weights.py",)


HC = "ops/hyper_connection/reference.py"
GDN = "ops/gdn/project.py"
QSA = "ops/qsa/"
RAW = ("tests/ops/gpu/test_raw.py", "-k", "rejected")
CHOICE = ("tests/ops/gpu/test_qsa.py", "-k", "stable_sort")
MOE = "ops/moe/reference.py"
NGRAM = "ops/ngram/"
ROPE = "ops/rope/reference.py"

MUTATIONS: tuple[Mutation, ...] = (
    # norms
    _m("norm: one plus w a second time", "ops/norm/reference.py", ".flatten(-2) * w", ".flatten(-2) * (1 + w)"),
    _m("norm: one mean over all streams", HC, "w.norm, streams, eps", "w.norm, 1, eps"),
    _m(
        "norm: no epsilon",
        "ops/norm/reference.py",
        "(parts.square().mean(-1, keepdim=True) + eps)",
        "(parts.square().mean(-1, keepdim=True))",
        ("tests/ops/test_norm.py",),
    ),
    # hyper-connections
    _m("inject: factor 2 missing", HC, "return mixed, 2 * sigmoid", "return mixed, 1 * sigmoid"),
    _m("inject: not divided by S", HC, "linear(xn, w.inject) / streams", "linear(xn, w.inject)"),
    _m("read: not divided by S before silu", HC, "linear(xn, w.down) / streams", "linear(xn, w.down)"),
    _m("read: sum instead of mean over streams", HC, ".mean(-2)", ".sum(-2)"),
    _m("read: gate without sigmoid", HC, "gate = sigmoid(linear(low, w.up))", "gate = linear(low, w.up)"),
    _m(
        "write: normalised streams",
        "model/forward.py",
        "return ops.hc_write(residual, out, inject)",
        "return ops.hc_write(ops.rms(residual, torch.ones(residual.shape[1])), out, inject)",
    ),
    # gated delta network
    _m("GDN: gate activation silu", GDN, "(o, norm, eps) * sigmoid(z)", "(o, norm, eps) * silu(z)"),
    _m(
        "GDN: value heads grouped, not tiled (kernel)",
        "ops/gdn/kernel.py",
        "h = j % key_heads",
        "h = j // (heads // key_heads)",
    ),
    _m(
        "GDN: value heads grouped, not tiled (steps)",
        "ops/gdn/recurrent.py",
        "x.repeat(v.shape[-2] // x.shape[0], 1)",
        "x.repeat_interleave(v.shape[-2] // x.shape[0], 0)",
        DELTA,
    ),
    _m(
        "GDN: value heads grouped, not tiled (chunks)",
        "ops/gdn/chunked.py",
        "x.repeat(1, tiles, 1)",
        "x.repeat_interleave(tiles, 1)",
        DELTA,
    ),
    _m("GDN: mean instead of sum in the q/k norm", GDN, "x.square().sum(-1", "x.square().mean(-1"),
    _m(
        "GDN: epsilon outside the root",
        GDN,
        "torch.sqrt(x.square().sum(-1, keepdim=True) + NORM_EPS)",
        "(torch.sqrt(x.square().sum(-1, keepdim=True)) + NORM_EPS)",
        ("tests/ops/test_gdn.py",),
    ),
    _m("GDN: q not scaled", GDN, "* c.d**-0.5", "* 1.0"),
    _m("GDN: no silu after the convolution", GDN, "mixed = silu(convolve(", "mixed = (convolve("),
    _m("GDN: beta without sigmoid", GDN, "beta=sigmoid(linear(m, w.beta))", "beta=linear(m, w.beta)"),
    _m("GDN: dt not added", GDN, "linear(m, w.alpha) + w.dt", "linear(m, w.alpha)"),
    _m(
        "GDN: decay after the update (steps)",
        "ops/gdn/recurrent.py",
        "return state + key * delta[:, None, :]",
        "return (state + key * delta[:, None, :]) * torch.exp(g)[:, None, None]",
        DELTA,
    ),
    _m(
        "GDN: the prediction is not of the decayed state (kernel)",
        "ops/gdn/kernel.py",
        "total = sums[c] + (state[i, c] * decay) * k0",
        "total = sums[c] + state[i, c] * k0",
    ),
    _m(
        "GDN: second row starts from the old state (kernel)",
        "ops/gdn/kernel.py",
        "if t == 0 else after[j], k[t",
        ", k[t",
        STEPS,
    ),
    _m(
        "GDN: last keys left out where four do not divide the width (kernel)",
        "ops/gdn/kernel.py",
        "for i in range(whole, width):",
        "for i in range(width, width):",
        DELTA,
    ),
    _m("GDN: taps reversed", GDN, "total = total + taps[:, j] *", "total = total + taps[:, n - 1 - j] *"),
    _m(
        "GDN: nearest token not corrected for (chunks)",
        "ops/gdn/chunked.py",
        "* decay).tril(-1)",
        "* decay).tril(-2)",
        DELTA,
    ),
    _m(
        "GDN: chunks at relative positions",
        "ops/gdn/chunked.py",
        "(start + first) % CHUNK",
        "first % CHUNK",
        ("tests/ops/test_gdn.py",),
    ),
    _m(
        "GDN: a difference of running sums as decay",
        "ops/gdn/chunked.py",
        "torch.exp(steps.cumsum(-2)).tril()",
        "torch.exp(g.cumsum(-1)[..., :, None] - g.cumsum(-1)[..., None, :]).tril()",
        ("tests/ops/test_gdn.py",),
    ),
    # sparse attention
    _m("QSA: tail rows not attended", QSA + "select.py", "return allowed | tail", "return allowed", SELECT),
    _m(
        "QSA: tail rows not attended (kernel)",
        QSA + "kernel.py",
        "for token in range(count * ratio, seen):",
        "for token in range(seen, seen):",
    ),
    _m(
        "QSA: ties to the higher block",
        QSA + "select.py",
        "torch.sort(scores.masked_fill(hidden, -1.0), dim=-1, descending=True, stable=True).indices",
        "scores.shape[1] - 1 - torch.sort(scores.masked_fill(hidden, -1.0).flip(-1), dim=-1, descending=True,"
        " stable=True).indices",
        SELECT,
    ),
    _m(
        "QSA: ties to the higher block (kernel)",
        QSA + "kernel.py",
        "equal = bits[b] == least\n",
        "equal = bits[b] == least and (bits[b:count] == least).sum() <= left\n",
        SELECT,
    ),
    _m(
        "QSA: norm before mean",
        QSA + "project.py",
        "rms(pooled, w.ik_norm, eps)",
        "rms(ik, w.ik_norm, eps).unflatten(0, (-1, ratio)).mean(1)",
    ),
    _m(
        "QSA: block keys at the last token's position",
        "ops/conversation.py",
        "[old * ratio : complete * ratio : ratio]",
        "[old * ratio + ratio - 1 : complete * ratio : ratio]",
    ),
    _m("QSA: negative scores count", QSA + "select.py", "torch.relu(iq @ keys.T)", "(iq @ keys.T)", SELECT),
    _m(
        "QSA: negative scores count (kernel)",
        QSA + "kernel.py",
        "max(products[b], np.float32(0))",
        "products[b]",
        SELECT,
    ),
    _m("QSA: one block more", QSA + "select.py", "order[:, :blocks]", "order[:, : blocks + 1]", SELECT),
    _m("QSA: one block more (kernel)", QSA + "kernel.py", "left = blocks\n", "left = blocks + 1\n", SELECT),
    _m(
        "QSA: own block always chosen",
        QSA + "select.py",
        "hidden, -1.0)",
        "hidden, -1.0).scatter(1, (complete[:, None] - 1).clamp(min=0), 1e9)",
        SELECT,
    ),
    _m(
        "QSA: indexer keys rotated before pooling",
        "ops/cpu.py",
        "rows = (own.k, own.v, own.ik)",
        "rows = (own.k, own.v, own.ik * batch.angles.cos[segment.rows, :1])",
    ),
    _m("QSA: gate without sigmoid", QSA + "attend.py", "o * sigmoid(gate)", "o * gate"),
    _m("QSA: gate rows before query rows", QSA + "project.py", "q, gate = linear", "gate, q = linear"),
    _m("QSA: no scale", QSA + "attend.py", "* q.shape[-1] ** -0.5", "* 1.0", SELECT),
    _m("QSA: no scale (kernel)", QSA + "kernel.py", "np.float64(width) ** -0.5", "1.0"),
    _m("QSA: neighbouring head's keys (kernel)", QSA + "kernel.py", "* stride + 4 * g * width", "* stride"),
    _m("QSA: a ring that a window thrown away reaches round", QSA + "pages.py", "RING = 32", "RING = 16", RAW),
    _m(
        "QSA: the bin of the smallest chosen score is not counted",
        QSA + "choose.py",
        "below + tl.load(bins + which)",
        "below",
        CHOICE,
    ),
    _m("QSA: always dense", "model/forward.py", "number, sparse=True)", "number, sparse=False)"),
    # rotary positions
    _m(
        "rope: neighbouring pairs",
        ROPE,
        "x1, x2 = x[..., :half], x[..., half : 2 * half]",
        "x1, x2 = x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2]",
    ),
    _m(
        "rope: h and w swapped",
        ROPE,
        "3 * rope.sections[which] : 3] = which",
        "3 * rope.sections[which] : 3] = 3 - which",
        ("tests/model/test_parity.py", "-k", "images"),
    ),
    _m(
        "rope: positions counted after images",
        "ops/conversation.py",
        "max(state.next_position, int(done.positions[:n].max()) + 1)",
        "state.length",
        STEPS,
    ),
    _m("YaRN: no attention factor", ROPE, "rope.attention * (1 + 0.1 * math.log(rope.scale))", "1.0"),
    _m(
        "YaRN: ramp turned round",
        ROPE,
        "inv * (1 - ramp) + inv / rope.scale * ramp",
        "inv * ramp + inv / rope.scale * (1 - ramp)",
    ),
    # experts
    _m("router: weights not renormalised", MOE, "p / p.sum(-1, keepdim=True)", "p"),
    _m("router: one expert fewer", MOE, "p = p[:, :topk]", "p = p[:, :topk] * (torch.arange(topk) < topk - 1)"),
    _m(
        "router: ties to the higher expert",
        MOE,
        "torch.sort(probabilities, dim=-1, descending=True, stable=True)",
        "(lambda s: (s[0], probabilities.shape[1] - 1 - s[1]))(torch.sort(probabilities.flip(-1), dim=-1,"
        " descending=True, stable=True))",
        ("tests/ops/test_moe.py",),
    ),
    _m("experts: silu on up", MOE, "silu(linear(m, gate)) * linear(m, up)", "linear(m, gate) * silu(linear(m, up))"),
    _m("shared expert: not gated", MOE, "return gate * expert(", "return expert("),
    # n-gram embedding
    _m("hash: lags in the other order", NGRAM + "hash.py", "* c.multipliers[lag])", "* c.multipliers[c.n - lag])"),
    _m(
        "hash: EOS does not cut",
        NGRAM + "hash.py",
        "dead |= earlier == c.eos",
        "dead |= earlier < 0",
        ("tests/ops/test_ngram.py",),
    ),
    _m(
        "hash: EOS cuts itself",
        NGRAM + "hash.py",
        "dead = np.zeros(count, dtype=bool)",
        "dead = tokens[c.n - 1 :] == c.eos",
        ("tests/ops/test_ngram.py",),
    ),
    _m("PLE: no signed root", NGRAM + "mix.py", "a = a.sign() * a.abs().clamp(min=1e-6).sqrt()", "a = a * 1.0"),
    _m("PLE: not divided by sqrt(H)", NGRAM + "mix.py", "/ value.shape[-1] ** 0.5", "/ 1.0"),
    _m(
        "PLE: no dilation",
        NGRAM + "mix.py",
        "convolve(torch.cat((tail, x.normed)), w.conv, dilation)",
        "convolve(torch.cat((tail, x.normed))[(dilation - 1) * (w.conv.shape[1] - 1) :], w.conv, 1)",
    ),
    _m("PLE: silu missing", NGRAM + "mix.py", "along = silu(", "along = ("),
    _m("PLE: gated value not added itself", NGRAM + "mix.py", "residual + (x.gated + along)", "residual + along"),
    # state
    _m(
        "commit: convolution tail one row short",
        "ops/conversation.py",
        "return torch.cat((old, new))[new.shape[0] :]",
        "return torch.cat((old[:1], old, new))[new.shape[0] : new.shape[0] + old.shape[0]]",
        STEPS,
    ),
    _m(
        "commit: whole window's state after a partial commit",
        "ops/conversation.py",
        "s if n == len(done.ids) else advance(kept, memory.s)",
        "s",
        WINDOWS,
    ),
    _m(
        "commit: history keeps refused ids",
        "ops/conversation.py",
        "(*state.history, *done.ids[:n])[n:]",
        "(*state.history, *done.ids)[len(done.ids) :]",
        WINDOWS,
    ),
    _m(
        "commit: n-gram tail keeps refused rows",
        "ops/conversation.py",
        "done.record.ngram[:n]",
        "done.record.ngram",
        WINDOWS,
    ),
    _m(
        "commit: blocks of refused tokens",
        "model/state.py",
        "self.blocks.commit(self.k.length // ratio - self.blocks.length)",
        "self.blocks.commit((self.k.length + ratio - 1) // ratio - self.blocks.length)",
        WINDOWS,
    ),
    _m(
        "window: rows summed together",
        "ops/linear/stored.py",
        "if w.dtype == torch.float64:",
        "if x.shape[0] > 1:",
        WINDOWS,
    ),
    _m(
        "window: exponentials of all rows at once",
        "ops/elementwise/reference.py",
        "if x.shape[0] <= together:",
        "if x.shape[0] > 0:",
        ("tests/ops/test_elementwise.py",),
    ),
    # draft head
    _m("MTP: one norm per stream", "model/mtp.py", "c.S if options.norm_per_stream else 1", "c.S", MTP),
    _m(
        "MTP: embedding not normalised",
        "model/mtp.py",
        "ops.rms(ops.embed(batch, w.embed), w.enorm)",
        "ops.embed(batch, w.embed)",
        MTP,
    ),
    _m(
        "MTP: embedding and hidden halves swapped",
        "model/load_mtp.py",
        "fc_embedding, fc_hidden = _halves(",
        "fc_hidden, fc_embedding = _halves(",
        MTP,
    ),
    _m(
        "MTP: embedding added to one stream only",
        "model/mtp.py",
        "streams = [e + ops.linear(part, w.fc_hidden) for part",
        "streams = [e * (i == 0) + ops.linear(part, w.fc_hidden) for i, part",
        MTP,
    ),
    _m(
        "MTP: cells one position late",
        "model/mtp.py",
        "[cells : cells + count]",
        "[cells : cells + count] + 1",
        MTP,
    ),
    _m("MTP: hidden row of the token itself", "model/mtp.py", "done.residual[: n - 1]))", "done.residual[1:n]))", MTP),
    _m(
        "MTP: chain fed with the trunk's row",
        "model/mtp.py",
        "ids, positions = [int(logits.argmax())]",
        "residual, ids, positions = memory.residual[None], [int(logits.argmax())]",
        MTP,
    ),
    _m(
        "MTP: the trunk's mixer",
        "model/load_mtp.py",
        'mixer=_mixer(take, c, name("mixer_norm"), name("mixer_down"), name("mixer_up")),',
        'mixer=_mixer(take, c, "output_hc_norm.weight", "output_hc_down.weight", "output_hc_up.weight"),',
        MTP,
    ),
    _m("MTP: selection instead of dense attention", "model/mtp.py", "sparse: bool = False", "sparse: bool = True", MTP),
    # stored weights and the pool
    _m(
        "pool: an error inside is lost",
        "experts/pool/region.py",
        "return load(state + FAILED)",
        "return 0",
        ("tests/experts/test_pool.py", "-k", "error_inside"),
    ),
    _m(
        "pool: one item too many is taken",
        "experts/pool/region.py",
        "if taken >= (word >> _COUNT) & _TAKEN:",
        "if taken > (word >> _COUNT) & _TAKEN:",
        ("tests/experts/test_pool.py",),
    ),
    _m(
        "pool: outputs behind a matrix do not count",
        "experts/compute/shares.py",
        "(left + behind) * third",
        "left * third",
        SHARES,
    ),
    _m(
        "pool: items end as large as they begin",
        "experts/compute/shares.py",
        "(left + behind) * third",
        "(outputs + behind) * third",
        SHARES,
    ),
    _m(
        "pool: a crumb is left at a matrix's end",
        "experts/compute/shares.py",
        "        if part < left < 2 * part:  # no crumb is left\n            part = left // 2\n",
        "",
        SHARES,
    ),
    _m("pool: items are as small as can be", "experts/compute/shares.py", ", least), most)", ", 8), most)", SHARES),
    _m(
        "pool: nobody waits for what is not there yet",
        "experts/pool/region.py",
        "if after != 0 and load(after) == 0:",
        "if after == 1:",
        WAITING,
    ),
    _m(
        "pool: what others wait for has failed, and they go on",
        "experts/pool/region.py",
        "        if failed == 0:\n            failed = call(",
        "        if failed != LOST:\n            failed = call(",
        WAITING,
    ),
    _m("pool: whoever waits is at work", "experts/pool/region.py", "store(mine, WAITS)", "store(mine, TAKES)", WAITING),
    _m(
        "pool: idle threads never sleep",
        "experts/pool/region.py",
        "elif idle < spins:",
        "elif idle >= 0:",
        ("tests/experts/test_pool.py", "-k", "idle"),
    ),
    _m(
        "pool: a container's share of time is not asked for",
        "experts/pool/topology.py",
        "if machine.quota is not None and machine.quota < best:",
        "if machine.quota is not None and machine.quota < 0:",
        ("tests/experts/test_topology.py",),
    ),
    _m(
        "pool: efficiency cores count as others",
        "experts/pool/topology.py",
        "if cpu.capacity >= PERFORMANCE * strongest}",
        "if cpu.capacity >= 0}",
        ("tests/experts/test_topology.py",),
    ),
    _m(
        "experts: h quantised before all of it is there",
        "experts/compute/steps.py",
        "if add(done + HAVE, last - first) + last - first == width",
        "if add(done + HAVE, last - first) == 0",
        COMPUTE,
    ),
    _m(
        "experts: the first one's scale for all",
        "experts/compute/steps.py",
        "peek(descriptor + SCALES) + expert * peek(descriptor + SCALE_STEP)",
        "peek(descriptor + SCALES)",
        COMPUTE,
    ),
    _m(
        "experts: up's activations in gate's order",
        "experts/compute/moe.py",
        "shares = peek(gate + ORDER) == peek(up + ORDER) and peek(gate + OFFSET) == peek(up + OFFSET)",
        "shares = True",
        COMPUTE,
    ),
    _m(
        "experts: weighted sum in another order",
        "experts/compute/steps.py",
        "for j in range(topk):",
        "for j in range(topk - 1, -1, -1):",
        COMPUTE,
    ),
    _m(
        "linear: rows behind the eighth get the first ones' activations",
        "experts/kernels/kernel.py",
        "count - start), inputs + 8 * start, outputs + 8 * start",
        "count - start), inputs, outputs + 8 * start",
        COMPUTE,
    ),
    _m(
        "weights: stored matrices counted as float32",
        "model/take.py",
        "self.bytes += prod(shape[:-1]) * info.type.row_bytes(shape[-1])",
        "self.bytes += 4 * prod(shape)",
        STORED,
    ),
    _m(
        "weights: halves cut through blocks",
        "model/take.py",
        "or info.type.name not in self._kept or cut % info.type.weights:",
        "or info.type.name not in self._kept:",
        STORED,
    ),
    # guessing ahead
    _m("drafts: retries never become rare", DRAFTS + "policy.py", "2 * self.wait)", "self.wait)", POLICY),
    _m(
        "drafts: what is known of a depth is not rounded off",
        DRAFTS + "policy.py",
        "ROUNDED = 2.0",
        "ROUNDED = 0.01",
        POLICY,
    ),
    _m(
        "drafts: a lookup goes before a better head",
        DRAFTS + "drafter.py",
        "looked.speed >= chained",
        "99 >= chained",
        GUESSER,
    ),
    _m(
        "drafts: short matches believed like long ones",
        DRAFTS + "drafter.py",
        "match.shared >= LONG",
        "match.shared",
        GUESSER,
    ),
    _m("drafts: one row's bad moment is believed", DRAFTS + "timings.py", "if m >= n)", "if m == n)", MEASURED),
    _m("drafts: times are believed for ever", DRAFTS + "timings.py", "> self._count - KEPT", "> -KEPT", MEASURED),
    _m(
        "lookup: of equal matches the oldest",
        DRAFTS + "lookup.py",
        "if shared > length:",
        "if shared >= length:",
        LOOKUP,
    ),
    *MEMORY,
)
