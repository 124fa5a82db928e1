"""Sentences for measurements: plain English of mixed length, written for this project."""

from __future__ import annotations

import random
from collections.abc import Iterator

_PLACES = (
    "the harbour,the old mill,a quiet street,the library,the garden wall,our kitchen,"
    "the railway station,a field of barley,the top of the hill,the far side of the river"
).split(",")
_PEOPLE = (
    "The teacher,A young doctor,My neighbour,The captain,Her brother,The baker,An old friend,"
    "The gardener,Our guide,The night watchman"
).split(",")
_DEEDS = (
    "waited for the first boat,read the letter twice,left a lamp in the window,"
    "counted the steps aloud,mended the broken gate,sang under his breath,"
    "drew a map of the coast,asked for a cup of tea,watched the snow come down,"
    "carried the heavy basket home"
).split(",")
_TIMES = (
    "before sunrise,late in the evening,every second day,all through the winter,"
    "when the bell rang,after the rain,on the last day of June,without a word,"
    "as the tide went out,for the third time that week"
).split(",")
_SHORT = (
    "Good morning.,Come in and sit down.,Nobody answered.,That will do.,What a day!,"
    "Are you ready?,It was too late.,Please close the door.,I think so.,Not at all."
).split(",")
_LISTS = (
    "One, two, three, four, five, six.;Salt, pepper, flour, eggs, milk.;A, B, C, D, E, F.;"
    "Monday, Tuesday, Wednesday, Thursday.;Ready, steady, go!;No, no, no, no."
).split(";")


def sentences(seed: int) -> Iterator[str]:
    """An endless, repeatable stream: of five one is short, one is long, one is a list."""
    draw = random.Random(seed)
    while True:
        one = f"{draw.choice(_PEOPLE)} {draw.choice(_DEEDS)} near {draw.choice(_PLACES)}"
        kind = draw.randrange(5)
        if kind == 0:
            yield draw.choice(_SHORT)
        elif kind == 1:
            yield f"{one}, and {draw.choice(_PEOPLE).lower()} {draw.choice(_DEEDS)}."
        elif kind == 2:
            yield draw.choice(_LISTS)
        else:
            yield f"{one} {draw.choice(_TIMES)}."


def passages(count: int, *, seed: int, longest: int = 4) -> list[str]:
    """`count` passages of 1 to `longest` sentences."""
    stream, draw = sentences(seed), random.Random(seed + 1)
    return [" ".join(next(stream) for _ in range(draw.randint(1, longest))) for _ in range(count)]
