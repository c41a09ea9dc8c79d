"""Launches the kernels that choose tokens. What to do comes from the CPU in a few small transfers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.sampling import Chosen, Drawn, NoToken, SamplingRows, check_targets
from radixrt.kernels.transfer import fetch, on_device, send
from radixrt.kernels.triton.sampling_kernels import (
    add_biases,
    apply_masks,
    count_tokens,
    draw,
    find_likeliest,
    forbid,
    log_probabilities,
    penalise,
    score_targets,
    weigh,
)
from radixrt.kernels.triton.tiling import power_of_two

IDS = 1024
"""Listed ids that a program takes."""

COLDEST = 1e-30
"""A lower temperature is this one: to divide by it makes no infinity, and leaves only the likeliest tokens."""


class TritonSampler:
    """`kernels.sampling.Sampler` on the device. Changed logits are rounded to float32."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def sample(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Chosen:
        drawn = self.draw(logits, rows, vocabulary)
        self._wait()
        return drawn.read()

    def draw(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Drawn:
        width = logits.shape[1]
        vocabulary = width if vocabulary is None else min(vocabulary, width)
        rows.check(vocabulary)
        chosen = Chosen.room_for(rows, vocabulary)
        if len(rows) == 0:
            return Drawn(torch.empty(0, dtype=torch.int32, device=self._device), lambda: chosen)
        tokens = self.choose(logits[:, :vocabulary], rows)
        if vocabulary < width:
            # The largest of numbers among which there is a NaN is NaN, and below nothing.
            finite = logits[:, vocabulary:].amax(dim=1) < torch.inf
            tokens = torch.where(finite, tokens, int(NoToken.NOT_FINITE))
        wanting = np.flatnonzero(rows.rows["logprobs"] >= 0)
        coming = [fetch(tokens)]
        if len(wanting):
            parts = self._log_probabilities(logits, tokens, wanting, rows, chosen.best.shape[1], vocabulary)
            coming += [fetch(part) for part in parts]

        def read() -> Chosen:
            places: tuple[NDArray[Any], ...] = (chosen.tokens, chosen.logprobs, chosen.best, chosen.best_logprobs)
            for place, came in zip(places, coming, strict=False):
                place[:] = came.numpy()
            return chosen

        return Drawn(tokens, read)

    def choose(self, logits: Tensor, rows: SamplingRows) -> Tensor:
        """Tokens, or members of `NoToken`, on the device: int32 [n]."""
        logits = _by_rows(logits)
        count, vocabulary = logits.shape
        changed = self._changed(logits, rows)
        tokens = torch.empty(count, dtype=torch.int32, device=self._device)
        tops = torch.empty(count, dtype=torch.float32, device=self._device)
        size = _tokens(vocabulary)
        find_likeliest[(count,)](
            logits,
            changed,
            tokens,
            tops,
            vocabulary,
            logits.stride(0),
            CHANGED=changed is not logits,
            TOKENS=size,
            enable_fp_fusion=True,
            num_warps=8,
        )
        sampled = np.flatnonzero(rows.rows["temperature"] != 0)
        if len(sampled):
            source = changed.contiguous()
            own = rows.rows[sampled]
            which, top_ks = self._send(sampled, np.clip(own["top_k"], -1, 2**31 - 1))
            temperatures, settings = self._send_doubles(
                np.maximum(own["temperature"], COLDEST), np.stack([own["top_p"], own["min_p"], own["uniform"]], axis=1)
            )
            weights = torch.empty(len(sampled), vocabulary, dtype=torch.float64, device=self._device)
            blocks = (len(sampled), -(-vocabulary // size))
            weigh[blocks](
                source, which, tops, temperatures, weights, vocabulary, TOKENS=size, enable_fp_fusion=True, num_warps=8
            )
            draw[(len(sampled),)](
                source,
                weights,
                which,
                settings,
                top_ks,
                tokens,
                vocabulary,
                TOKENS=size,
                enable_fp_fusion=True,
                num_warps=8,
            )
        return tokens

    def score(self, logits: Tensor, targets: NDArray[np.int32]) -> NDArray[np.float64]:
        read = self.begin_score(logits, targets)
        self._wait()
        return read()

    def begin_score(self, logits: Tensor, targets: NDArray[np.int32]) -> Callable[[], NDArray[np.float64]]:
        logits = _by_rows(logits)
        count, vocabulary = logits.shape
        check_targets(targets, vocabulary)
        scores = torch.empty(count, dtype=torch.float64, device=self._device)
        if count:
            (sent,) = self._send(targets)
            size = _tokens(vocabulary)
            score_targets[(count,)](
                logits, sent, scores, vocabulary, logits.stride(0), TOKENS=size, enable_fp_fusion=True, num_warps=8
            )
        coming = fetch(scores)
        return lambda: coming.numpy()

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def _changed(self, logits: Tensor, rows: SamplingRows) -> Tensor:
        """The logits after penalties, biases and masks; themselves if there are none."""
        spec, vocabulary = rows.rows, logits.shape[1]
        counted = (spec["frequency_penalty"] != 0) | (spec["presence_penalty"] != 0) | (spec["repetition_penalty"] != 1)
        penalised, masked = np.flatnonzero(counted), np.flatnonzero(spec["mask"] >= 0)
        if not (len(penalised) or len(masked) or spec["biased"].any() or spec["forbidden"].any()):
            return logits
        changed = logits.clone(memory_format=torch.contiguous_format)
        size = _tokens(vocabulary)
        if len(penalised):
            self._penalise(changed, spec[penalised], penalised, rows.ids, size)
        after = spec["first_id"] + spec["forbidden"] + spec["prompt"] + spec["output"]
        self._add_biases(changed, after, rows)
        self._forbid(changed, rows)
        if len(masked):
            which, masks_of = self._send(masked, spec["mask"][masked])
            masks = on_device(torch.from_numpy(np.ascontiguousarray(rows.masks)), self._device)
            grid = (len(masked), -(-vocabulary // size))
            apply_masks[grid](
                changed, which, masks_of, masks, masks.shape[1], vocabulary, TOKENS=size, enable_fp_fusion=True
            )
        return changed

    def _penalise(
        self, changed: Tensor, own: NDArray[np.void], which: NDArray[np.intp], ids: NDArray[np.int32], size: int
    ) -> None:
        vocabulary = changed.shape[1]
        counts = torch.zeros(len(which), vocabulary, dtype=torch.int32, device=self._device)
        longest = int((own["prompt"] + own["output"]).max())
        rows, first_ids, prompts, outputs, sent = self._send(
            which, own["first_id"] + own["forbidden"], own["prompt"], own["output"], ids
        )
        if longest:
            grid = (len(which), -(-longest // IDS))
            count_tokens[grid](sent, first_ids, prompts, outputs, counts, vocabulary, IDS=IDS, enable_fp_fusion=True)
        names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
        (penalties,) = self._send_doubles(np.stack([own[name] for name in names], axis=1))
        penalise[(len(which), -(-vocabulary // size))](
            changed, rows, penalties, counts, vocabulary, TOKENS=size, enable_fp_fusion=True
        )

    def _add_biases(self, changed: Tensor, first_ids: NDArray[np.int64], rows: SamplingRows) -> None:
        lengths = rows.rows["biased"]
        count = int(lengths.sum())
        if count == 0:
            return
        owners, tokens = self._send(np.repeat(np.arange(len(lengths)), lengths), rows.ids[_ranges(first_ids, lengths)])
        (biases,) = self._send_doubles(rows.biases[_ranges(rows.rows["first_bias"], lengths)])
        add_biases[(-(-count // IDS),)](
            changed, owners, tokens, biases, count, changed.shape[1], IDS=IDS, enable_fp_fusion=True
        )

    def _forbid(self, changed: Tensor, rows: SamplingRows) -> None:
        lengths = rows.rows["forbidden"]
        count = int(lengths.sum())
        if count == 0:
            return
        owners, tokens = self._send(
            np.repeat(np.arange(len(lengths)), lengths), rows.ids[_ranges(rows.rows["first_id"], lengths)]
        )
        forbid[(-(-count // IDS),)](changed, owners, tokens, count, changed.shape[1], IDS=IDS, enable_fp_fusion=True)

    def _log_probabilities(
        self,
        logits: Tensor,
        tokens: Tensor,
        wanting: NDArray[np.intp],
        rows: SamplingRows,
        most: int,
        vocabulary: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`logprobs`, `best` and `best_logprobs` of `Chosen`, on the device."""
        logits = _by_rows(logits)
        count, width = logits.shape
        which, wanted = self._send(wanting, np.minimum(rows.rows["logprobs"][wanting], vocabulary))
        logprobs = torch.zeros(count, dtype=torch.float64, device=self._device)
        best_logprobs = torch.zeros(count, most, dtype=torch.float64, device=self._device)
        best = torch.zeros(count, most, dtype=torch.int32, device=self._device)
        log_probabilities[(len(wanting),)](
            logits,
            which,
            tokens,
            wanted,
            most,
            logprobs,
            best,
            best_logprobs,
            vocabulary,
            width,
            logits.stride(0),
            TOKENS=_tokens(width),
            enable_fp_fusion=True,
            num_warps=8,
        )
        return logprobs, best, best_logprobs

    def _send(self, *arrays: NDArray[np.generic]) -> tuple[Tensor, ...]:
        """As int32 on the device, in one transfer."""
        return send(arrays, self._device)

    def _send_doubles(self, *arrays: NDArray[np.float64]) -> tuple[Tensor, ...]:
        """As float64 on the device, flat, in one transfer."""
        return send(arrays, self._device, np.float64)


def _by_rows(logits: Tensor) -> Tensor:
    """`logits` with each row in one piece."""
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _tokens(vocabulary: int) -> int:
    """Tokens that a program takes at a time."""
    return min(power_of_two(vocabulary), 4096)


def _ranges(starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """`starts[i], starts[i] + 1, ...`, `lengths[i]` of them, for each i."""
    ends = lengths.cumsum()
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)
