"""Edges, int16 and gates against loudkit's numbers; encoded bytes that repeat and read back."""

from __future__ import annotations

import hashlib
import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.synthesis import _quantise as reference_quantise
from loudkit.window import _fade_edges as reference_fade

from engine.audio import (
    FORMATS,
    PICTURE_PARTS,
    Pcm,
    Waveform,
    encode,
    fade_edges,
    gates,
    join,
    pcm_sha256,
    picture,
    quantise,
    require_finite,
)
from engine.errors import AudioFormatError, AudioNotFiniteError

RATE_HZ = 24_000


def noise(n: int, seed: int = 0) -> Waveform:
    return (np.random.default_rng(seed).normal(size=n) * 0.2).astype(np.float32)


# -- fade and join ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.005, 0.02, 0.001, 0.05])
@pytest.mark.parametrize("rate_hz", [24_000, 16_000, 44_100])
def test_the_ramp_has_the_reference_s_bits(seconds: float, rate_hz: int) -> None:
    n = int(seconds * rate_hz)
    for audio in (np.ones(2 * n, np.float32), noise(2 * n + 1), noise(3 * n)):
        ours = fade_edges(audio, sample_rate_hz=rate_hz, seconds=seconds)
        theirs = reference_fade(audio, sample_rate=rate_hz, seconds=seconds)
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_the_ramp_is_a_half_cosine_that_starts_at_nothing() -> None:
    ones = np.ones(2_000, np.float32)
    faded = fade_edges(ones, sample_rate_hz=RATE_HZ, seconds=0.02)
    expected = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, 480))
    np.testing.assert_allclose(faded[:480], expected, atol=1e-6)
    np.testing.assert_array_equal(faded[-480:], faded[:480][::-1])
    assert (faded[480:-480] == 1.0).all()
    assert (ones == 1.0).all()  # the caller's samples are the caller's


@pytest.mark.parametrize("n", [0, 1, 959])
def test_audio_shorter_than_two_ramps_is_left_alone(n: int) -> None:
    audio = noise(n)
    faded = fade_edges(audio, sample_rate_hz=RATE_HZ, seconds=0.02)
    np.testing.assert_array_equal(faded, audio)


def test_windows_join_end_to_end() -> None:
    parts = [noise(5, 1), noise(0), noise(3, 2)]
    joined = join(parts)
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined, np.concatenate(parts))
    assert join([]).shape == (0,)


# -- int16 -----------------------------------------------------------------------------------------

TINY = np.float32(1e-45)
STEPS = np.arange(-32_770, 32_771, dtype=np.float32) / np.float32(32_768)
EDGES = np.concatenate(
    [
        np.array([1.0, -1.0, 0.0, -0.0, TINY, -TINY, 1.0000001, -1.0000001], np.float32),
        np.array([0.99999994, -0.99999994, 1e-30, -1e-30, 3.0e38, -3.0e38], np.float32),
        STEPS,
        np.nextafter(STEPS, np.float32(np.inf)),
        np.nextafter(STEPS, np.float32(-np.inf)),
    ]
)


def test_edges_are_quantised_as_the_reference_quantises_them() -> None:
    np.testing.assert_array_equal(quantise(EDGES), reference_quantise(EDGES))


def test_the_rule_is_floor_and_clip() -> None:
    samples = np.array([1.0, -1.0, -0.0, -TINY, TINY, 1.5 / 32768, -1.5 / 32768], np.float32)
    assert quantise(samples).tolist() == [32767, -32768, 0, -1, 0, 1, -2]
    assert quantise(samples).dtype == np.int16


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_any_sample_is_quantised_as_the_reference_quantises_it(values: list[float]) -> None:
    audio = np.array(values, np.float32)
    np.testing.assert_array_equal(quantise(audio), reference_quantise(audio))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    audio = noise(100)
    audio[37] = audio[80] = bad
    with pytest.raises(AudioNotFiniteError, match=f"joe/short: sample 37 of 100 is {bad}"):
        require_finite(audio, "joe/short")
    with pytest.raises(AudioNotFiniteError, match="sample 37"):
        quantise(audio)
    require_finite(noise(100), "joe/short")


def test_the_hash_is_over_little_endian_words() -> None:
    pcm = np.array([1, -2, 258], np.int16)
    expected = hashlib.sha256(b"\x01\x00\xfe\xff\x02\x01").hexdigest()
    assert pcm_sha256(pcm) == expected
    assert pcm_sha256(pcm.astype(">i2")) == expected


# -- gates -----------------------------------------------------------------------------------------


def test_gates_of_an_ordinary_clip() -> None:
    pcm = np.zeros(2_400, np.int16)
    pcm[1_200:] = quantise(noise(1_200) * np.float32(0.1))
    pcm[1_300] = -16_384
    found = gates(pcm)
    assert found.peak_dbfs == pytest.approx(-6.02, abs=0.01)
    assert found.clipped_share == 0.0
    assert found.silent_share == 0.5
    assert not found.is_silent
    assert not found.is_clipped


def test_gates_of_a_clipped_clip() -> None:
    pcm = np.zeros(1_000, np.int16)
    pcm[10], pcm[20] = 32767, -32768
    found = gates(pcm)
    assert found.peak_dbfs == 0.0
    assert found.clipped_share == 0.002
    assert found.is_clipped
    assert not found.is_silent


@pytest.mark.parametrize(("level", "silent"), [(0, True), (32, True), (33, False)])
def test_silence_is_under_minus_60_dbfs(level: int, silent: bool) -> None:
    found = gates(np.full(500, -level, np.int16))
    assert found.is_silent is silent
    assert found.silent_share == float(silent)


def test_an_empty_clip_is_silent() -> None:
    found = gates(np.zeros(0, np.int16))
    assert found.is_silent
    assert (found.peak_dbfs, found.clipped_share, found.silent_share) == (-120.0, 0.0, 1.0)


def test_a_last_block_that_is_short_counts_by_its_length() -> None:
    pcm = np.full(250, 1_000, np.int16)
    pcm[240:] = 0
    assert gates(pcm).silent_share == 10 / 250


# -- picture ---------------------------------------------------------------------------------------


def slow_picture(pcm: Pcm) -> bytes:
    """The same by its words, a sample at a time."""
    values, n = [int(sample) for sample in pcm], len(pcm)
    found = []
    for part in range(PICTURE_PARTS if n else 0):
        first, end = part * n // PICTURE_PARTS, (part + 1) * n // PICTURE_PARTS
        loudest = max(abs(sample) for sample in values[first : max(end, first + 1)])
        found.append(math.ceil(loudest * 255 / 32768))
    return bytes(found)


@given(st.lists(st.integers(-32768, 32767), max_size=400))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_a_picture_has_the_loudest_sample_of_each_part(values: list[int]) -> None:
    pcm = np.array(values, np.int16)
    assert picture(pcm) == slow_picture(pcm)


def test_a_picture_of_known_samples() -> None:
    pcm = np.zeros(PICTURE_PARTS * 10, np.int16)
    pcm[[5, 17, 29, 1199]] = -32768, 32767, 1, -16384
    expected = bytearray(PICTURE_PARTS)
    expected[0], expected[1], expected[2], expected[119] = 255, 255, 1, 128
    assert picture(pcm) == expected


# -- files -----------------------------------------------------------------------------------------


def clip(n: int = RATE_HZ // 2) -> Pcm:
    t = np.arange(n) / RATE_HZ
    tone = 0.4 * np.sin(2 * np.pi * 220.0 * t) + 0.1 * noise(n)
    return quantise(tone.astype(np.float32))


def read(data: bytes) -> tuple[Pcm, int]:
    pcm, rate_hz = soundfile.read(io.BytesIO(data), dtype="int16")
    return pcm, rate_hz


@pytest.mark.parametrize("name", ["flac", "wav"])
@pytest.mark.parametrize("n", [1, 12_000])
def test_a_lossless_file_reads_back_to_the_same_samples(name: str, n: int) -> None:
    pcm, rate_hz = read(encode(clip(n), sample_rate_hz=RATE_HZ, format=name))
    np.testing.assert_array_equal(pcm, clip(n))
    assert rate_hz == RATE_HZ
    assert FORMATS[name].lossless


@pytest.mark.parametrize("name", ["opus", "mp3"])
def test_a_lossy_file_reads_back_to_about_the_same(name: str) -> None:
    pcm, rate_hz = read(encode(clip(), sample_rate_hz=RATE_HZ, format=name))
    assert rate_hz == RATE_HZ
    assert pcm.shape[0] == clip().shape[0]
    difference = (pcm - clip().astype(np.float64))[1_000:-1_000]
    assert np.sqrt(np.mean(difference**2)) < 3_000
    assert not FORMATS[name].lossless


IN_ANOTHER_PROCESS = """
import hashlib, sys
import numpy as np
from engine.audio import FORMATS, encode
pcm = np.frombuffer(sys.stdin.buffer.read(), dtype=np.int16)
for name in FORMATS:
    data = encode(pcm, sample_rate_hz=24_000, format=name)
    print(name, hashlib.sha256(data).hexdigest())
"""


def test_the_bytes_repeat_call_after_call_and_in_another_process() -> None:
    pcm = clip()
    here = {
        name: hashlib.sha256(encode(pcm, sample_rate_hz=RATE_HZ, format=name)).hexdigest()
        for name in FORMATS
    }
    again = {
        name: hashlib.sha256(encode(pcm, sample_rate_hz=RATE_HZ, format=name)).hexdigest()
        for name in FORMATS
    }
    other = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        input=pcm.tobytes(),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    there = dict(line.split() for line in other.stdout.decode().splitlines())
    assert here == again == there


def ogg_serials(data: bytes) -> set[bytes]:
    pages = data.split(b"OggS")[1:]
    return {page[10:14] for page in pages}


def test_an_ogg_serial_follows_the_clip() -> None:
    first = ogg_serials(encode(clip(), sample_rate_hz=RATE_HZ, format="opus"))
    other = ogg_serials(encode(clip()[1:], sample_rate_hz=RATE_HZ, format="opus"))
    assert len(first) == len(other) == 1
    assert first != other


def test_renumbering_an_ogg_stream_with_its_own_number_changes_nothing() -> None:
    # Proves the page checksum: libsndfile's own pages come out as they went in.
    from engine.audio import _with_ogg_serial

    file = io.BytesIO()
    soundfile.write(file, clip(60_000), RATE_HZ, format="OGG", subtype="OPUS")
    data = file.getvalue()
    assert _with_ogg_serial(data, data[14:18]) == data


@pytest.mark.parametrize("rate_hz", [8_000, 12_000, 16_000, 24_000, 48_000])
def test_every_format_takes_opus_s_rates(rate_hz: int) -> None:
    for name in FORMATS:
        assert read(encode(clip(4_000), sample_rate_hz=rate_hz, format=name))[1] == rate_hz


@pytest.mark.parametrize(
    ("name", "rate_hz", "reason"),
    [
        ("opus", 22_050, "opus takes 8000, 12000, 16000, 24000, 48000 Hz only, got 22050"),
        ("opus", 44_100, "opus takes .* got 44100"),
        ("mp3", 96_000, "mp3 takes .* 44100, 48000 Hz only, got 96000"),
        ("flac", 0, "flac at 0 Hz: "),
        ("flac", 700_000, "flac at 700000 Hz: .*sample rate"),
        ("wav", -1, "wav at -1 Hz: "),
    ],
)
def test_a_rate_that_a_format_cannot_take_is_refused(name: str, rate_hz: int, reason: str) -> None:
    with pytest.raises(AudioFormatError, match=reason) as refusal:
        encode(clip(4_000), sample_rate_hz=rate_hz, format=name)
    assert "\n" not in str(refusal.value)


def test_an_unknown_format_is_refused_with_those_that_work() -> None:
    with pytest.raises(AudioFormatError, match=r"'aiff' is unknown; .*: flac, wav, opus, mp3$"):
        encode(clip(), sample_rate_hz=RATE_HZ, format="aiff")


def test_a_format_that_this_libsndfile_cannot_write_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_mp3(container: str, encoding: str) -> bool:
        return container != "MP3"

    monkeypatch.setattr(soundfile, "check_format", no_mp3)
    with pytest.raises(AudioFormatError, match=r"'mp3' is not written .*: flac, wav, opus$"):
        encode(clip(), sample_rate_hz=RATE_HZ, format="mp3")


@pytest.mark.parametrize(
    "pcm", [np.zeros(0, np.int16), np.zeros((4, 2), np.int16), np.zeros(4, np.int32)]
)
def test_what_is_no_clip_is_refused(pcm: Pcm) -> None:
    with pytest.raises(AudioFormatError, match="one row of int16 samples"):
        encode(pcm, sample_rate_hz=RATE_HZ, format="flac")


def test_extensions_and_media_types_are_distinct() -> None:
    assert {name: f.extension for name, f in FORMATS.items()} == {
        name: f".{name}" for name in FORMATS
    }
    assert len({f.media_type for f in FORMATS.values()}) == len(FORMATS)
