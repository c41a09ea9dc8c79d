"""Choosing tokens on the device. Sums and exponentials are in float64, logits stay in float32 when they are changed.

Nothing is sorted: the least likely token that a filter keeps is found by halving the range of float32 patterns, which
are as many as there are integers of 32 bits.
"""

import triton
import triton.language as tl

SEEN = tl.constexpr(1 << 30)
"""In a token's count: it is in the prompt."""
LOWEST = tl.constexpr(-(2**31))
HIGHEST = tl.constexpr(2**31 - 1)


@triton.jit
def count_tokens(ids, first_ids, prompts, outputs, counts, vocabulary, IDS: tl.constexpr):
    """How often each token is in a row's output, with SEEN added if it is in the prompt."""
    row = tl.program_id(0)
    first, prompt, output = tl.load(first_ids + row), tl.load(prompts + row), tl.load(outputs + row)
    index = tl.program_id(1) * IDS + tl.arange(0, IDS)
    there = index < prompt + output
    token = tl.load(ids + first + index, mask=there, other=0)
    place = counts + row.to(tl.int64) * vocabulary + token
    tl.atomic_or(place, SEEN, mask=index < prompt)
    tl.atomic_add(place, 1, mask=there & (index >= prompt))


@triton.jit
def penalise(logits, rows, penalties, counts, vocabulary, TOKENS: tl.constexpr):
    """Repetition, frequency and presence penalties: float64 [3] a row."""
    row = tl.program_id(0)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    inside = token < vocabulary
    repetition, frequency, presence = (
        tl.load(penalties + row * 3),
        tl.load(penalties + row * 3 + 1),
        tl.load(penalties + row * 3 + 2),
    )
    place = logits + tl.load(rows + row).to(tl.int64) * vocabulary + token
    value = tl.load(place, mask=inside, other=0.0).to(tl.float64)
    count = tl.load(counts + row.to(tl.int64) * vocabulary + token, mask=inside, other=0)
    repeated = tl.where(value > 0, value / repetition, value * repetition)
    value = tl.where(count != 0, repeated, value)
    count = count & (SEEN - 1)
    value -= frequency * count.to(tl.float64) + tl.where(count > 0, presence, 0.0)
    tl.store(place, _narrowed(value), mask=inside)


@triton.jit(do_not_specialize=["count"])
def add_biases(logits, rows, tokens, biases, count, vocabulary, IDS: tl.constexpr):
    """`biases[i]` to the logit of `tokens[i]` in row `rows[i]`."""
    index = tl.program_id(0) * IDS + tl.arange(0, IDS)
    there = index < count
    row = tl.load(rows + index, mask=there, other=0).to(tl.int64)
    place = logits + row * vocabulary + tl.load(tokens + index, mask=there, other=0)
    value = tl.load(place, mask=there, other=0.0).to(tl.float64)
    biased = value + tl.load(biases + index, mask=there, other=0.0)
    tl.store(place, _narrowed(biased), mask=there)


@triton.jit
def _narrowed(value):
    """Float64 as float32. What is too large for it stays finite: infinities have a meaning."""
    kept = tl.minimum(tl.maximum(value, -3.4e38), 3.4e38)
    return tl.where(value == float("-inf"), value, kept).to(tl.float32)


@triton.jit(do_not_specialize=["count"])
def forbid(logits, rows, tokens, count, vocabulary, IDS: tl.constexpr):
    """-infinity to the logit of `tokens[i]` in row `rows[i]`."""
    index = tl.program_id(0) * IDS + tl.arange(0, IDS)
    there = index < count
    row = tl.load(rows + index, mask=there, other=0).to(tl.int64)
    place = logits + row * vocabulary + tl.load(tokens + index, mask=there, other=0)
    tl.store(place, tl.full([IDS], float("-inf"), tl.float32), mask=there)


@triton.jit
def apply_masks(logits, rows, which, masks, words, vocabulary, TOKENS: tl.constexpr):
    """-infinity to the logits of tokens whose bit in the row's mask is not set, or that lie past it."""
    row = tl.program_id(0)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    mask = masks + tl.load(which + row).to(tl.int64) * words
    word = tl.load(mask + token // 32, mask=token // 32 < words, other=0)
    allowed = (word >> (token % 32)) & 1
    place = logits + tl.load(rows + row).to(tl.int64) * vocabulary + token
    forbidden = tl.full([TOKENS], float("-inf"), tl.float32)
    tl.store(place, forbidden, mask=(token < vocabulary) & (allowed == 0))


@triton.jit
def find_likeliest(raw, logits, chosen, tops, vocabulary, raw_stride, CHANGED: tl.constexpr, TOKENS: tl.constexpr):
    """A row's likeliest token, the lowest id among equals, or a `NoToken`; its logit to `tops`."""
    row = tl.program_id(0).to(tl.int64)
    top, token, finite = _likeliest(raw + row * raw_stride, vocabulary, TOKENS)
    none = tl.where(finite, tl.where(top == float("-inf"), -2, 0), -1)
    if CHANGED:
        top, token, _ = _likeliest(logits + row * vocabulary, vocabulary, TOKENS)
        none = tl.where((none == 0) & (top == float("-inf")), -3, none)
    tl.store(chosen + row, tl.where(none < 0, none, token))
    tl.store(tops + row, top)


@triton.jit
def _likeliest(row, vocabulary, TOKENS: tl.constexpr):
    """The largest logit, its lowest id, and whether no logit is NaN or +infinity."""
    top = tl.full([], float("-inf"), tl.float32)
    best = tl.full([], 0, tl.int32)
    finite = tl.full([], 1, tl.int32)
    for start in tl.range(0, vocabulary, TOKENS):
        token = start + tl.arange(0, TOKENS)
        value = tl.load(row + token, mask=token < vocabulary, other=float("-inf"))
        finite = tl.minimum(finite, tl.min((value < float("inf")).to(tl.int32), 0))
        value = tl.where(value < float("inf"), value, float("-inf"))
        highest = tl.max(value, 0)
        if highest > top:
            top = highest
            best = tl.min(tl.where(value == highest, token, HIGHEST), 0)
    return top, best, finite == 1


@triton.jit
def weigh(logits, rows, tops, temperatures, weights, vocabulary, TOKENS: tl.constexpr):
    """exp((logit - top) / temperature), float64: a row of `weights` for each of `rows`."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    inside = token < vocabulary
    value = tl.load(logits + row * vocabulary + token, mask=inside, other=float("-inf")).to(tl.float64)
    top = tl.load(tops + row).to(tl.float64)
    # Of a row without a token that may be chosen nothing is asked.
    below = tl.where(top > float("-inf"), value - tl.where(top > float("-inf"), top, 0.0), float("-inf"))
    weight = tl.exp(below / tl.load(temperatures + tl.program_id(0)))
    tl.store(weights + tl.program_id(0).to(tl.int64) * vocabulary + token, weight, mask=inside)


@triton.jit
def draw(logits, weights, rows, settings, top_ks, chosen, vocabulary, TOKENS: tl.constexpr):
    """The token of each of `rows`, by its weights: those that the filters keep, in the order of ids.

    `settings`: float64 [3] a row: top_p, min_p, uniform.
    """
    place = tl.program_id(0)
    row = tl.load(rows + place).to(tl.int64)
    if tl.load(chosen + row) < 0:
        return
    logits += row * vocabulary
    weights += place.to(tl.int64) * vocabulary
    top_p, min_p = tl.load(settings + place * 3), tl.load(settings + place * 3 + 1)
    uniform = tl.load(settings + place * 3 + 2)
    top_k = tl.load(top_ks + place)

    # Kept are the tokens above `least`, and the first `ties` of those that equal it, in the order of their logits.
    least = tl.full([], LOWEST, tl.int32)
    ties = tl.full([], HIGHEST, tl.int32)
    if (top_k > 0) & (top_k < vocabulary):
        least = _kth_largest(logits, top_k, vocabulary, TOKENS)
        above, _, _, _ = _around(logits, weights, least, vocabulary, TOKENS)
        ties = top_k - above
    if top_p < 1:
        target = top_p * _kept_mass(logits, weights, least, ties, 0.0, vocabulary, TOKENS)
        floor, floor_ties = least, ties
        least = _nucleus(logits, weights, floor, target, vocabulary, TOKENS)
        _, equal, mass_above, weight = _around(logits, weights, least, vocabulary, TOKENS)
        wanted = tl.ceil((target - mass_above) / tl.where(weight > 0, weight, 1.0))
        limit = tl.where(least == floor, tl.minimum(floor_ties, equal), equal)
        ties = tl.minimum(tl.maximum(wanted, 1.0), limit.to(tl.float64)).to(tl.int32)
    total = _kept_mass(logits, weights, least, ties, min_p, vocabulary, TOKENS)
    token = _at(logits, weights, least, ties, min_p, uniform * total, vocabulary, TOKENS)
    tl.store(chosen + row, token)


@triton.jit
def _order(value):
    """A float32 as an integer in the same order, -0.0 as 0.0."""
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _load_order(logits, token, vocabulary):
    return _order(tl.load(logits + token, mask=token < vocabulary, other=float("-inf")))


@triton.jit
def _kth_largest(logits, k, vocabulary, TOKENS: tl.constexpr):
    """The largest number that at least k logits reach."""
    low, high = tl.full([], LOWEST, tl.int64), tl.full([], HIGHEST, tl.int64)
    for _ in tl.range(0, 32):
        middle = (low + high + 1) >> 1
        count = tl.full([], 0, tl.int32)
        for start in tl.range(0, vocabulary, TOKENS):
            token = start + tl.arange(0, TOKENS)
            reached = (token < vocabulary) & (_load_order(logits, token, vocabulary) >= middle)
            count += tl.sum(reached.to(tl.int32), 0)
        low = tl.where(count >= k, middle, low)
        high = tl.where(count >= k, high, middle - 1)
    return low.to(tl.int32)


@triton.jit
def _nucleus(logits, weights, floor, target, vocabulary, TOKENS: tl.constexpr):
    """The largest number such that the tokens which reach it weigh `target`; `floor` if none above that does."""
    low, high = floor.to(tl.int64), tl.full([], HIGHEST, tl.int64)
    for _ in tl.range(0, 32):
        middle = (low + high + 1) >> 1
        mass = tl.full([], 0.0, tl.float64)
        for start in tl.range(0, vocabulary, TOKENS):
            token = start + tl.arange(0, TOKENS)
            reached = (token < vocabulary) & (_load_order(logits, token, vocabulary) >= middle)
            mass += tl.sum(tl.load(weights + token, mask=reached, other=0.0), 0)
        enough = (mass >= target) & (low < high)
        high = tl.where(enough | (low >= high), high, middle - 1)
        low = tl.where(enough, middle, low)
    return low.to(tl.int32)


@triton.jit
def _around(logits, weights, least, vocabulary, TOKENS: tl.constexpr):
    """How many logits are above `least` and how many equal it, what the former weigh, and what one of the latter."""
    above, equal = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
    mass, weight = tl.full([], 0.0, tl.float64), tl.full([], 0.0, tl.float64)
    for start in tl.range(0, vocabulary, TOKENS):
        token = start + tl.arange(0, TOKENS)
        inside = token < vocabulary
        order = _load_order(logits, token, vocabulary)
        own = tl.load(weights + token, mask=inside, other=0.0)
        is_above, is_equal = inside & (order > least), inside & (order == least)
        above += tl.sum(is_above.to(tl.int32), 0)
        equal += tl.sum(is_equal.to(tl.int32), 0)
        mass += tl.sum(tl.where(is_above, own, 0.0), 0)
        weight = tl.maximum(weight, tl.max(tl.where(is_equal, own, 0.0), 0))
    return above, equal, mass, weight


@triton.jit
def _kept(logits, weights, start, seen, least, ties, min_p, vocabulary, TOKENS: tl.constexpr):
    """The weights of a block's kept tokens, 0 for the others, and how many tokens up to its end equal `least`."""
    token = start + tl.arange(0, TOKENS)
    order = _load_order(logits, token, vocabulary)
    equal = ((token < vocabulary) & (order == least)).to(tl.int32)
    before = seen + tl.cumsum(equal, 0) - equal
    kept = (token < vocabulary) & ((order > least) | ((equal == 1) & (before < ties)))
    weight = tl.load(weights + token, mask=kept, other=0.0)
    # The likeliest token, which is always kept, weighs 1.
    return tl.where(weight >= min_p, weight, 0.0), seen + tl.sum(equal, 0)


@triton.jit
def _kept_mass(logits, weights, least, ties, min_p, vocabulary, TOKENS: tl.constexpr):
    seen, mass = tl.full([], 0, tl.int32), tl.full([], 0.0, tl.float64)
    for start in tl.range(0, vocabulary, TOKENS):
        weight, seen = _kept(logits, weights, start, seen, least, ties, min_p, vocabulary, TOKENS)
        mass += tl.sum(weight, 0)
    return mass


@triton.jit
def _at(logits, weights, least, ties, min_p, target, vocabulary, TOKENS: tl.constexpr):
    """The first kept token at which the sum of weights is past `target`; the last of any weight if it never is."""
    seen, mass = tl.full([], 0, tl.int32), tl.full([], 0.0, tl.float64)
    found, last = tl.full([], -1, tl.int32), tl.full([], 0, tl.int32)
    for start in tl.range(0, vocabulary, TOKENS):
        weight, seen = _kept(logits, weights, start, seen, least, ties, min_p, vocabulary, TOKENS)
        token = start + tl.arange(0, TOKENS)
        end = mass + tl.sum(weight, 0)
        past = (mass + tl.cumsum(weight, 0) > target) & (weight > 0)
        last = tl.maximum(last, tl.max(tl.where(weight > 0, token, 0), 0))
        # A sum and a running sum may be rounded apart: then it is the block's last token of any weight.
        first = tl.minimum(tl.min(tl.where(past, token, HIGHEST), 0), last)
        found = tl.where((found < 0) & (end > target), first, found)
        mass = end
    return tl.where(found < 0, last, found)


@triton.jit
def log_probabilities(
    logits,
    rows,
    tokens,
    wanted,
    most,
    logprobs,
    best,
    best_logprobs,
    vocabulary,
    width,
    row_stride,
    TOKENS: tl.constexpr,
):
    """Of the token of each of `rows`, and of its `wanted` likeliest, in order: `most` places a row."""
    place = tl.program_id(0)
    row = tl.load(rows + place).to(tl.int64)
    chosen = tl.load(tokens + row)
    if chosen < 0:
        return
    logits += row * row_stride
    normaliser, _ = _normaliser(logits, width, TOKENS)
    tl.store(logprobs + row, tl.load(logits + chosen).to(tl.float64) - normaliser)
    value, token = tl.full([], float("inf"), tl.float32), tl.full([], -1, tl.int32)
    for rank in tl.range(0, tl.load(wanted + place)):
        value, token = _next_likeliest(logits, value, token, vocabulary, TOKENS)
        tl.store(best + row * most + rank, token)
        tl.store(best_logprobs + row * most + rank, value.to(tl.float64) - normaliser)


@triton.jit
def _next_likeliest(logits, last_value, last_token, vocabulary, TOKENS: tl.constexpr):
    """The likeliest token after this one, the lower id first among equals."""
    best, best_token = tl.full([], float("-inf"), tl.float32), tl.full([], HIGHEST, tl.int32)
    for start in tl.range(0, vocabulary, TOKENS):
        token = start + tl.arange(0, TOKENS)
        value = tl.load(logits + token, mask=token < vocabulary, other=float("-inf"))
        after = (value < last_value) | ((value == last_value) & (token > last_token))
        after = after & (token < vocabulary)
        highest = tl.max(tl.where(after, value, float("-inf")), 0)
        first = tl.min(tl.where(after & (value == highest), token, HIGHEST), 0)
        better = (highest > best) | ((best_token == HIGHEST) & (first < HIGHEST))
        best = tl.where(better, highest, best)
        best_token = tl.where(better, first, best_token)
    return best, best_token


@triton.jit
def _normaliser(logits, vocabulary, TOKENS: tl.constexpr):
    """The logarithm of the sum of the exponentials, float64, and whether it is one."""
    top, _, finite = _likeliest(logits, vocabulary, TOKENS)
    usable = finite & (top > float("-inf"))
    highest = tl.where(usable, top, 0.0).to(tl.float64)
    total = tl.full([], 0.0, tl.float64)
    for start in tl.range(0, vocabulary, TOKENS):
        token = start + tl.arange(0, TOKENS)
        value = tl.load(logits + token, mask=token < vocabulary, other=float("-inf")).to(tl.float64)
        total += tl.sum(tl.where(usable, tl.exp(tl.where(usable, value - highest, 0.0)), 1.0), 0)
    return highest + tl.log(total), usable


@triton.jit
def score_targets(logits, targets, scores, vocabulary, row_stride, TOKENS: tl.constexpr):
    """The log-probability of each row's target; NaN where the row's logits are not finite."""
    row = tl.program_id(0).to(tl.int64)
    normaliser, usable = _normaliser(logits + row * row_stride, vocabulary, TOKENS)
    target = tl.load(logits + row * row_stride + tl.load(targets + row)).to(tl.float64)
    tl.store(scores + row, tl.where(usable, target - normaliser, float("nan")))
