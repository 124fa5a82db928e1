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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.audio import encode, quantise
from engine.contracts.contract import Conditioning
from engine.engine import Engine
from engine.events import FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.passage import FinishedWindow
from engine.session import Session

pytestmark = pytest.mark.slow

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


@dataclass(frozen=True)
class Spoken:
    """A text, who said it, its windows and its sound as a WAV file."""

    text: str
    voice: str
    windows: tuple[FinishedWindow, ...]
    wav: bytes


def speak(engine: Engine, texts: Sequence[str], voices: Sequence[str]) -> list[Spoken]:
    """Every text in its voice, through one session."""
    session = Session(engine, slots=16)
    for index, (text, voice) in enumerate(zip(texts, voices, strict=True)):
        session.submit(PassageJob(str(index), text, Conditioning(voice), 70 + index, "en", "wav"))
    wavs: dict[str, bytes] = {}
    windows: dict[str, list[FinishedWindow]] = {}
    while session.in_flight:
        for event in session.advance():
            assert not isinstance(event, FailureEvent), event
            if isinstance(event, WindowEvent):
                windows.setdefault(event.key, []).append(event.window)
            elif isinstance(event, PassageEvent):
                wavs[event.key] = event.audio
    return [
        Spoken(text, voice, tuple(windows[str(index)]), wavs[str(index)])
        for index, (text, voice) in enumerate(zip(texts, voices, strict=True))
    ]
