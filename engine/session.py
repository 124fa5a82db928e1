"""Many passages through one engine: their windows share the decode batch, their bytes do not.

A session takes jobs at any time and is advanced a frame at a time. Each passage is the law's own
generator; the session answers its requests from the slots. Finished windows become sound on a
thread of their own, in the order they come, while the slots write the next tokens. What goes
wrong in a passage ends that passage, by name, and no other.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from engine.audio import encode, gates, pcm_sha256, picture
from engine.decode import DecodeJob, Decoder, DecodeTimes
from engine.dialogue import dialogue_chunks, halve
from engine.engine import Engine
from engine.errors import AudioSilentError, EngineError
from engine.events import Event, FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.pack import Pack
from engine.passage import FinishedWindow, RawWindow, WindowRequest, run_passage
from engine.speech_chunks import speech_chunks

_SOUND_WAIT_S = 0.05
"""How long `advance` waits for sound where no slot has work; jobs that arrive wait no longer."""


@dataclass(slots=True)
class SessionTimes:
    """Seconds outside the decode batch."""

    codec_s: float = 0.0
    encode_s: float = 0.0
    text_s: float = 0.0


Rendering = Generator[WindowRequest | WindowEvent, RawWindow | None, Future[PassageEvent]]


def passage_chunks(pack: Pack, job: PassageJob) -> list[str]:
    """The chunks of a job's text or of its turns."""
    if job.turns:
        return dialogue_chunks(pack, job.turns, job.language)
    return speech_chunks(pack, job.text, job.language)


@dataclass(frozen=True, slots=True)
class _Part:
    """One window on its way to sound."""

    window: FinishedWindow
    audio: Future[NDArray[np.float32]]


def render_passage(
    engine: Engine, job: PassageJob, times: SessionTimes, sound: Executor
) -> Rendering:
    """One passage from text to file: the law's requests go out, its windows go to `sound`.

    `sound` runs one thing at a time in the order given, so the file is made once its windows
    are. Raises whatever `EngineError` ends the passage; what a window's sound ends it with is
    in the future, as a `_SoundError`.
    """

    def sounded(window: FinishedWindow) -> _Part:
        return _Part(window, sound.submit(_sounded, engine, window, times))

    started = perf_counter()
    law = run_passage(
        passage_chunks(engine.pack, job),
        seed=job.seed,
        algorithm=engine.pack.algorithm,
        count_text_tokens=engine.count_text_tokens,
        done=job.done,
        halve=halve,
    )
    times.text_s += perf_counter() - started
    parts = [sounded(window) for window in job.done]
    step = next(law, None)
    while step is not None:
        if isinstance(step, FinishedWindow):
            parts.append(sounded(step))
            yield WindowEvent(job.key, step)
            step = next(law, None)
        else:
            raw = yield step
            try:
                step = law.send(raw)
            except StopIteration:
                step = None
    return sound.submit(_file_of, engine, job, parts, times)


class _SoundError(Exception):
    """What ended a passage while it became sound, and the window it was in, if in one."""

    def __init__(self, cause: Exception, window: FinishedWindow | None) -> None:
        super().__init__(str(cause))
        self.cause, self.window = cause, window


def _file_of(
    engine: Engine, job: PassageJob, parts: list[_Part], times: SessionTimes
) -> PassageEvent:
    """The encoded passage of its windows' sound. Raises `_SoundError`."""
    audios = []
    for part in parts:
        try:
            audios.append(part.audio.result())
        except Exception as error:
            raise _SoundError(error, part.window) from error
    started = perf_counter()
    try:
        event = _encoded(engine, job, audios)
    except Exception as error:
        raise _SoundError(error, None) from error
    times.encode_s += perf_counter() - started
    return event


def _encoded(engine: Engine, job: PassageJob, audios: list[NDArray[np.float32]]) -> PassageEvent:
    pcm = engine.join_windows(audios)
    measured = gates(pcm)
    if measured.is_silent:
        raise AudioSilentError(
            f"all of it is silent: the loudest sample is {measured.peak_dbfs} dB"
        )
    audio = encode(pcm, sample_rate_hz=engine.pack.algorithm.sample_rate, format=job.format)
    return PassageEvent(
        key=job.key,
        audio=audio,
        audio_sha256=hashlib.sha256(audio).hexdigest(),
        pcm_sha256=pcm_sha256(pcm),
        samples=len(pcm),
        gates=measured,
        picture=picture(pcm),
    )


def _sounded(engine: Engine, window: FinishedWindow, times: SessionTimes) -> NDArray[np.float32]:
    started = perf_counter()
    audio = engine.render_window(window)
    times.codec_s += perf_counter() - started
    return audio


@dataclass(slots=True)
class _Running:
    """A passage under way and the window it waits for."""

    job: PassageJob
    rendering: Rendering
    request: WindowRequest | None = None


def _pin_thread(threads: int) -> None:
    """torch keeps the number of threads by thread: a new one would take every core."""
    torch.set_num_threads(threads)


class Session:
    """A decode batch of `slots` windows, and the passages that feed it."""

    def __init__(self, engine: Engine, *, slots: int) -> None:
        self.times = SessionTimes()
        self._engine = engine
        self._decoder = Decoder(
            engine.model,
            engine.text_side.contract,
            engine.pack.algorithm.sampling,
            slots=slots,
            capacity=engine.slot_capacity,
            row_padding=engine.execution.row_padding,
        )
        self._arrived: deque[PassageJob] = deque()
        self._waiting: deque[_Running] = deque()
        self._decoding: dict[int, _Running] = {}
        self._sounding: list[tuple[_Running, Future[PassageEvent]]] = []
        self._sound = ThreadPoolExecutor(
            1,
            thread_name_prefix="sound",
            initializer=_pin_thread,
            initargs=(engine.execution.threads,),
        )
        self._tickets = 0
        self._events: list[Event] = []

    @property
    def decode_times(self) -> DecodeTimes:
        """Where the decoder's seconds went."""
        return self._decoder.times

    @property
    def in_flight(self) -> int:
        """Passages that were submitted and have not ended."""
        decoding = len(self._waiting) + len(self._decoding)
        return len(self._arrived) + decoding + len(self._sounding)

    def submit(self, job: PassageJob) -> None:
        """Take a passage; it starts when a slot is free."""
        self._arrived.append(job)

    def advance(self) -> list[Event]:
        """Fill the free slots, generate one frame, settle what ended; what happened."""
        self._fill_slots()
        if self._decoding:
            for decoded in self._decoder.run_frame():
                self._resume(self._decoding.pop(decoded.ticket), decoded.outcome)
        elif self._sounding:
            wait([future for _, future in self._sounding], _SOUND_WAIT_S, FIRST_COMPLETED)
        self._collect_sound()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """End the thread that makes sound; what it has not begun is dropped."""
        self._sound.shutdown(cancel_futures=True)

    def _collect_sound(self) -> None:
        """The passages whose file is made, or could not be."""
        going = []
        for running, future in self._sounding:
            if not future.done():
                going.append((running, future))
            elif (error := future.exception()) is None:
                self._events.append(future.result())
            else:
                self._events.append(_failure(running, error))
        self._sounding = going

    def _fill_slots(self) -> None:
        """Windows of passages under way go before passages that have not begun."""
        while self._decoder.free_slots and (self._waiting or self._arrived):
            if self._waiting:
                self._admit(self._waiting.popleft())
            else:
                job = self._arrived.popleft()
                rendering = render_passage(self._engine, job, self.times, self._sound)
                self._resume(_Running(job, rendering), None)

    def _admit(self, running: _Running) -> None:
        request = running.request
        if request is None:
            raise RuntimeError(f"{running.job.key} waits for no window")
        try:
            prompt = self._engine.prompt_ids(request.text, running.job.conditioning, request.prefix)
            self._decoder.admit(
                DecodeJob(
                    ticket=self._tickets,
                    prompt=prompt,
                    seen=request.prefix,
                    seed=request.seed,
                    max_frames=request.max_row,
                    floor_frames=request.eos_floor,
                )
            )
        except EngineError as error:
            self._resume(running, error)
        else:
            self._decoding[self._tickets] = running
            self._tickets += 1

    def _resume(self, running: _Running, value: RawWindow | EngineError | None) -> None:
        """Give a passage what it waits for; it then waits again, is done, or has failed."""
        try:
            while True:
                if isinstance(value, EngineError):
                    step = running.rendering.throw(value)
                else:
                    step = running.rendering.send(value)
                if isinstance(step, WindowRequest):
                    running.request = step
                    self._waiting.append(running)
                    return
                self._events.append(step)
                value = None
        except StopIteration as finished:
            self._sounding.append((running, finished.value))
        except Exception as error:
            self._events.append(_failure(running, error))


def _failure(running: _Running, error: BaseException) -> FailureEvent:
    """A passage's end by error. One that nobody foresaw ends this passage too, not the batch."""
    at: WindowRequest | FinishedWindow | None = running.request
    if isinstance(error, _SoundError):
        at, error = error.window, error.cause
    known = isinstance(error, EngineError)
    return FailureEvent(
        key=running.job.key,
        code=error.code if isinstance(error, EngineError) else "internal_error",
        message=str(error) if known else f"{type(error).__name__}: {error}",
        retryable=error.retryable if isinstance(error, EngineError) else False,
        chunk_index=at.chunk_index if at else None,
        half=at.half if at else None,
        attempt=at.attempt if at else None,
    )
