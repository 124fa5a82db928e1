"""Samples on their way out: edge fade, join, int16, gates, a picture, and the bytes of a file."""

from __future__ import annotations

import hashlib
import io
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import AudioFormatError, AudioNotFiniteError

Waveform = NDArray[np.float32]
Pcm = NDArray[np.int16]


def fade_edges(audio: Waveform, *, sample_rate_hz: int, seconds: float) -> Waveform:
    """Half-cosine fade of both edges; audio shorter than two ramps is left as it is.

    The ramp is taken in float32 throughout: its bits are part of the recipe.
    """
    n = int(seconds * sample_rate_hz)
    if n <= 0 or audio.shape[0] < 2 * n:
        return audio
    angle = np.linspace(0.0, np.pi, n, dtype=np.float32)
    half = np.float32(0.5)
    ramp = half - half * np.cos(angle)
    faded = audio.astype(np.float32, copy=True)
    faded[:n] *= ramp
    faded[-n:] *= ramp[::-1]
    return faded


def join(parts: Iterable[Waveform]) -> Waveform:
    """Windows one after the other, with nothing between them."""
    return np.concatenate([np.zeros(0, np.float32), *parts])


def require_finite(audio: Waveform, what: str) -> None:
    """Raises `AudioNotFiniteError` naming the first sample of `what` that is NaN or infinite."""
    finite = np.isfinite(audio)
    if not finite.all():
        at = int(np.argmin(finite))
        raise AudioNotFiniteError(f"{what}: sample {at} of {audio.shape[0]} is {audio[at]}")


def quantise(audio: Waveform) -> Pcm:
    """Float samples to int16: `floor(x * 32768)` in float64, clipped. Not finite is refused."""
    require_finite(audio, "audio")
    scaled = np.floor(audio.astype(np.float64) * 32768.0)
    return np.clip(scaled, -32768.0, 32767.0).astype(np.int16)


def pcm_sha256(pcm: Pcm) -> str:
    """sha256 of the samples as little-endian 16-bit words, whatever this machine's order."""
    return hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()


# -- what is wrong with a clip --------------------------------------------------------------------

_FULL_SCALE: Final = 32768.0
_SILENCE_DBFS: Final = -60.0
_DIGITAL_SILENCE_DBFS: Final = -120.0  # under what 16 bits hold; finite, so that reports stay JSON
_BLOCK_SAMPLES: Final = 240  # 10 ms at 24 kHz
_MOST_CLIPPED: Final = 0.001


@dataclass(frozen=True, slots=True)
class AudioGates:
    """What can be told of a clip without listening. Shares are of 1."""

    peak_dbfs: float
    clipped_share: float  # samples at either end of int16
    silent_share: float  # samples in blocks of 10 ms (at 24 kHz) that stay under -60 dBFS

    @property
    def is_silent(self) -> bool:
        """No sample reaches -60 dBFS."""
        return self.peak_dbfs < _SILENCE_DBFS

    @property
    def is_clipped(self) -> bool:
        """More than one sample in a thousand is at full scale."""
        return self.clipped_share > _MOST_CLIPPED


def gates(pcm: Pcm) -> AudioGates:
    """Measures a clip. An empty one is silent."""
    level = np.abs(pcm.astype(np.int32))
    peak = int(level.max(initial=0))
    clipped = int(np.count_nonzero((pcm == 32767) | (pcm == -32768)))
    starts = np.arange(0, level.shape[0], _BLOCK_SAMPLES)
    blocks = np.maximum.reduceat(level, starts) if starts.size else level
    lengths = np.diff(starts, append=level.shape[0])
    silent = int(lengths[blocks < _FULL_SCALE * 10 ** (_SILENCE_DBFS / 20)].sum())
    size = max(level.shape[0], 1)
    return AudioGates(
        peak_dbfs=20.0 * math.log10(peak / _FULL_SCALE) if peak else _DIGITAL_SILENCE_DBFS,
        clipped_share=clipped / size,
        silent_share=silent / size if level.shape[0] else 1.0,
    )


# -- what a clip looks like -----------------------------------------------------------------------

PICTURE_PARTS: Final = 120
"""Equal parts of a clip, of each of which its picture tells the loudest sample."""


def picture(pcm: Pcm) -> bytes:
    """A clip's outline for people to look at: the largest |sample| of each of 120 equal parts.

    One byte a part, in order, full scale at 255 and rounded up, so that only digital silence is 0.
    Taken where the samples are, in integers alone: a page then draws thousands of clips and reads
    none. Of an empty clip it is empty; of one with fewer samples than parts, samples repeat.
    """
    n = pcm.shape[0]
    if n == 0:
        return b""
    starts = np.arange(PICTURE_PARTS, dtype=np.int64) * n // PICTURE_PARTS
    highest = np.maximum.reduceat(pcm, starts).astype(np.int32)
    lowest = np.minimum.reduceat(pcm, starts).astype(np.int32)
    level = np.maximum(highest, -lowest)
    return (-(-level * 255 // 32768)).astype(np.uint8).tobytes()


# -- bytes of a file ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A format of clips: its names, libsndfile's names for it, and the rates it is defined for."""

    extension: str
    media_type: str
    container: str
    encoding: str
    lossless: bool
    rates_hz: tuple[int, ...] | None = None  # None: any

    def takes(self, sample_rate_hz: int) -> bool:
        """Whether the format is defined for that rate."""
        return self.rates_hz is None or sample_rate_hz in self.rates_hz


_OPUS_RATES: Final = (8_000, 12_000, 16_000, 24_000, 48_000)
_MPEG_RATES: Final = (*_OPUS_RATES, 11_025, 22_050, 32_000, 44_100)

FORMATS: Final[Mapping[str, AudioFormat]] = MappingProxyType(
    {
        "flac": AudioFormat(".flac", "audio/flac", "FLAC", "PCM_16", True),
        "wav": AudioFormat(".wav", "audio/wav", "WAV", "PCM_16", True),
        "opus": AudioFormat(".opus", "audio/ogg", "OGG", "OPUS", False, _OPUS_RATES),
        "mp3": AudioFormat(
            ".mp3", "audio/mpeg", "MP3", "MPEG_LAYER_III", False, tuple(sorted(_MPEG_RATES))
        ),
    }
)


def encode(pcm: Pcm, *, sample_rate_hz: int, format: str) -> bytes:
    """A mono clip `(n,)` as the bytes of a file; the same bytes for the same clip, call after call
    and process after process, under one libsndfile.

    Raises `AudioFormatError` for a format or rate that cannot be written, and for an empty clip.
    """
    import soundfile  # here: it loads a shared library, which the rest of the module does without

    known = FORMATS.get(format)
    if known is None or not soundfile.check_format(known.container, known.encoding):
        works = [
            name for name, f in FORMATS.items() if soundfile.check_format(f.container, f.encoding)
        ]
        reason = "unknown" if known is None else "not written by this libsndfile"
        raise AudioFormatError(f"format {format!r} is {reason}; these work: {', '.join(works)}")
    if not known.takes(sample_rate_hz):
        rates = ", ".join(str(rate) for rate in known.rates_hz or ())
        raise AudioFormatError(f"{format} takes {rates} Hz only, got {sample_rate_hz}")
    if pcm.ndim != 1 or pcm.shape[0] == 0 or pcm.dtype != np.int16:
        raise AudioFormatError(
            f"a clip is one row of int16 samples, got {pcm.dtype} of shape {pcm.shape}"
        )
    file = io.BytesIO()
    try:
        soundfile.write(file, pcm, sample_rate_hz, format=known.container, subtype=known.encoding)
    except soundfile.LibsndfileError as error:
        raise AudioFormatError(f"{format} at {sample_rate_hz} Hz: {error.error_string}") from None
    data = file.getvalue()
    if known.container == "OGG":
        serial = hashlib.sha256(f"{sample_rate_hz}:{pcm_sha256(pcm)}".encode()).digest()[:4]
        return _with_ogg_serial(data, serial)
    return data


# Ogg (RFC 3533): where a page keeps what, in bytes from its start.
_OGG_SERIAL: Final = slice(14, 18)
_OGG_CRC: Final = slice(22, 26)
_OGG_SEGMENTS: Final = 26
_OGG_HEADER: Final = 27

_BITS_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _with_ogg_serial(data: bytes, serial: bytes) -> bytes:
    """The same Ogg stream under another serial number. libsndfile draws one at random, which is
    all that differs between two files of one clip."""
    pages = []
    at = 0
    while at < len(data):
        if data[at : at + 4] != b"OggS":
            raise AudioFormatError(f"libsndfile wrote no Ogg page at byte {at}")
        n_segments = data[at + _OGG_SEGMENTS]
        table = data[at + _OGG_HEADER : at + _OGG_HEADER + n_segments]
        page = bytearray(data[at : at + _OGG_HEADER + n_segments + sum(table)])
        page[_OGG_SERIAL] = serial
        page[_OGG_CRC] = bytes(4)
        page[_OGG_CRC] = _ogg_crc(bytes(page)).to_bytes(4, "little")
        pages.append(page)
        at += len(page)
    return b"".join(pages)


def _ogg_crc(page: bytes) -> int:
    """CRC-32 with Ogg's conventions: most significant bit first, starting and ending with zero.

    zlib has the same polynomial with every bit order mirrored and with ones at both ends, so the
    bytes are mirrored on the way in, the result on the way out, and the ones are taken back.
    """
    mirrored = zlib.crc32(page.translate(_BITS_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
