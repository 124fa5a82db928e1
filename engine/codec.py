"""The codec: SNAC frames to samples and back, one window at a time, the same bits every time.

A decode is a function of its codes, its seed and its place in the noise: no state outlives a call,
the global generators are neither read nor moved, and one codec may decode on several threads at
once. Every decode runs alone, at its exact length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.codec_config import SnacConfig, context_frames_needed
from engine.codec_host import HostDecoder, project_codebook
from engine.codec_noise import LatentDecoder, PlainDecoder, philox_noise
from engine.codec_weights import load_snac
from engine.errors import AudioNotFiniteError, DecodeOnlyError
from engine.frames import CODES_PER_FRAME, Codes, FrameShapeError, Ids, deinterleave
from engine.philox import CODEC_NOISE

WINDOW_FRAMES = 512
CONTEXT_FRAMES = 4


class SnacCodec:
    """A loaded SNAC codec. Build it with `load`."""

    def __init__(
        self, config: SnacConfig, model: Any, *, decode_only: bool, device: str, noise_stream: int
    ) -> None:
        self.config = config
        self.noise_stream = noise_stream
        self.decode_only = decode_only
        self.device = torch.device(device)
        # What a code adds to the latents is a row of a table, so a decode starts with three reads.
        # The tables are made on the host for every device.
        self._tables: tuple[Tensor, ...] = tuple(
            project_codebook(quantizer).to(self.device) for quantizer in model.quantizer.quantizers
        )
        self._decoder: LatentDecoder = (
            HostDecoder(model.decoder)
            if self.device.type == "cpu"
            else PlainDecoder(model.decoder.to(self.device))
        )
        self._encode = None if decode_only else model.encode  # stays on the host

    @classmethod
    def load(
        cls,
        config: Mapping[str, object],
        state: Mapping[str, Tensor],
        *,
        decode_only: bool,
        device: str = "cpu",
        noise_stream: int = CODEC_NOISE,
    ) -> Self:
        """Build a codec from a parsed `codec_config.json` and its tensors, on no random numbers.

        Weights may be plain or weight-normed in either of torch's spellings. A decode-only pack
        needs no `encoder.*` tensors. `noise_stream` is the manifest's `codec.noise_stream`. Raises
        `ManifestError` for the config and `PackMismatchError` listing the tensors that are missing,
        unexpected, misshapen or not finite.
        """
        parsed = SnacConfig.from_mapping(config)
        with torch.inference_mode():
            model = load_snac(parsed, state, decode_only=decode_only)
            return cls(
                parsed,
                model,
                decode_only=decode_only,
                device=device,
                noise_stream=noise_stream,
            )

    @property
    def samples_per_frame(self) -> int:
        """Samples of one frame; a decode of F frames has exactly F times as many."""
        return self.config.samples_per_frame

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second."""
        return self.config.sampling_rate

    @property
    def context_frames_needed(self) -> int:
        """Frames of context on a side that make a windowed decode hear what the whole hears."""
        return context_frames_needed(self.config)

    def decode(self, codes: Codes, *, seed: int, first_frame: int = 0) -> NDArray[np.float32]:
        """The samples of all frames at once: `(F * samples_per_frame,)`, in -1..1.

        `first_frame` is the absolute number of the first frame in `codes`: it places them in the
        noise of `seed` and changes nothing else. Raises `TokenBandError` for a code of no codebook
        entry and `AudioNotFiniteError`.
        """
        if first_frame < 0:
            raise FrameShapeError(f"first_frame must be 0 or more, got {first_frame}")
        codes.require_within(self.config.codebook_size)
        if codes.n_frames == 0:
            return np.zeros(0, dtype=np.float32)
        noise = philox_noise(
            self.config,
            seed=seed,
            stream=self.noise_stream,
            first_frame=first_frame,
            device=self.device,
        )
        with torch.inference_mode():
            decoded = self._decoder(self._latents(codes), noise)
        audio: NDArray[np.float32] = decoded.cpu().numpy()
        _require_finite(audio, "decoded audio")
        return audio

    def decode_long(
        self,
        codes: Codes,
        *,
        seed: int,
        window_frames: int = WINDOW_FRAMES,
        context_frames: int = CONTEXT_FRAMES,
        first_frame: int = 0,
    ) -> NDArray[np.float32]:
        """As `decode`, in windows that each keep `window_frames` frames, so memory has a bound.

        Up to `context_frames` more are decoded on each side of a window and thrown away. From
        `context_frames_needed` on, the bits are those of `decode` on the CPU (measured); with
        fewer, samples near the seams differ (starter: 3e-4 of full scale with 2, 1e-2 with 1).
        """
        if window_frames < 1 or context_frames < 0:
            raise FrameShapeError(
                f"a window keeps 1 frame or more with 0 or more of context, got {window_frames}"
                f" and {context_frames}"
            )
        parts: list[NDArray[np.float32]] = []
        for start in range(0, codes.n_frames, window_frames):
            stop = min(start + window_frames, codes.n_frames)
            left = max(0, start - context_frames)
            heard = codes.span(left, stop + context_frames)
            audio = self.decode(heard, seed=seed, first_frame=first_frame + left)
            kept = (start - left) * self.samples_per_frame
            parts.append(audio[kept : kept + (stop - start) * self.samples_per_frame])
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.zeros(0, dtype=np.float32), *parts])

    def decode_window(
        self,
        tokens: Sequence[int] | Ids,
        *,
        seed: int,
        audio_base: int,
        context: Sequence[int] | Ids = (),
        window_frames: int = WINDOW_FRAMES,
        context_frames: int = CONTEXT_FRAMES,
    ) -> NDArray[np.float32]:
        """The samples of one window's tokens; `context`, its carry, is heard but not rendered.

        Both are absolute ids of whole frames. Frame 0 of the noise is the first frame of `context`,
        or of `tokens` where there is none. Long windows are decoded as in `decode_long`. Raises
        `TokenBandError` and `FrameShapeError` naming `context[i]` or `tokens[i]`.
        """
        size = self.config.codebook_size
        carried = deinterleave(context, audio_base=audio_base, codebook_size=size, what="context")
        spoken = deinterleave(tokens, audio_base=audio_base, codebook_size=size)
        if spoken.n_frames == 0:
            return np.zeros(0, dtype=np.float32)
        audio = self.decode_long(
            carried.followed_by(spoken),
            seed=seed,
            window_frames=window_frames,
            context_frames=context_frames,
        )
        return audio[carried.n_frames * self.samples_per_frame :]

    def encode(self, audio: NDArray[np.float32]) -> Codes:
        """The codes of mono samples `(n,)` at `sample_rate_hz`, padded with silence to a frame.

        Runs on the CPU whatever the device. Frames that repeat are kept: see
        `frames.remove_duplicate_frames`. Raises `DecodeOnlyError` when the pack has no trained
        encoder, and `AudioNotFiniteError`.
        """
        if self._encode is None:
            raise DecodeOnlyError("this codec has no trained encoder, so it cannot encode audio")
        samples = np.asarray(audio, dtype=np.float32)
        if samples.ndim != 1:
            raise FrameShapeError(f"audio must be one row of samples, got shape {samples.shape}")
        _require_finite(samples, "audio to encode")
        if not len(samples):
            return Codes(*(np.zeros(0, dtype=np.int64) for _ in CODES_PER_FRAME))
        with torch.inference_mode():
            levels = self._encode(torch.tensor(samples)[None, None])
        return Codes(*(level[0].numpy() for level in levels))

    def _latents(self, codes: Codes) -> Tensor:
        """The latents `(4F, latent_dim)`: each level's rows held for its stride, then summed."""
        c0, c1, c2 = (
            table[torch.from_numpy(np.repeat(level, stride)).to(self.device)]
            for table, level, stride in zip(
                self._tables, codes.levels, self.config.vq_strides, strict=True
            )
        )
        return c0.add_(c1).add_(c2)


def _require_finite(audio: NDArray[np.float32], what: str) -> None:
    finite = np.isfinite(audio)
    if not finite.all():
        first = int(np.argmin(finite))
        raise AudioNotFiniteError(f"{what}: sample {first} is {audio[first]}")
