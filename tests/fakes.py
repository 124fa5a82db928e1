"""Stand-ins for tests: small models, quiet progress, and engines that need no weights."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Self

from engine.audio import AudioGates
from engine.detectors import Inspection
from engine.events import Event, FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.execution import ExecutionIdentity
from engine.llama_config import LlamaConfig, RopeScaling
from engine.passage import FinishedWindow, Half
from engine.philox import derive
from workers.fleet import WorkerDied

if TYPE_CHECKING:
    from torch import Tensor


def tiny_llama_config(
    *,
    kv_heads: int = 2,
    tied: bool = True,
    scaling: RopeScaling | None = None,
    vocab_size: int = 97,
) -> LlamaConfig:
    """A Llama of a few thousand weights."""
    return LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        vocab_size=vocab_size,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=scaling,
        tie_word_embeddings=tied,
    )


def random_llama_state(config: LlamaConfig, *, seed: int, scale: float = 0.3) -> dict[str, Tensor]:
    """Hugging Face tensors of random weights."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    state = {
        "model.embed_tokens.weight": draw(config.vocab_size, hidden),
        "model.norm.weight": 1 + draw(hidden),
    }
    for index in range(config.num_hidden_layers):
        at = f"model.layers.{index}."
        state |= {
            at + "input_layernorm.weight": 1 + draw(hidden),
            at + "post_attention_layernorm.weight": 1 + draw(hidden),
            at + "self_attn.q_proj.weight": draw(queries, hidden),
            at + "self_attn.k_proj.weight": draw(keys, hidden),
            at + "self_attn.v_proj.weight": draw(keys, hidden),
            at + "self_attn.o_proj.weight": draw(hidden, queries),
            at + "mlp.gate_proj.weight": draw(inner, hidden),
            at + "mlp.up_proj.weight": draw(inner, hidden),
            at + "mlp.down_proj.weight": draw(hidden, inner),
        }
    if not config.tie_word_embeddings:
        state["lm_head.weight"] = draw(config.vocab_size, hidden)
    return state


def finished_window_of(
    *, chunk_index: int = 0, half: Half = 0, seed: int = 7, frames: int = 3
) -> FinishedWindow:
    """A settled window of the starter's ids."""
    tokens = tuple(76 + 512 * position + 5 for _ in range(frames) for position in range(7))
    return FinishedWindow(
        chunk_index=chunk_index,
        half=half,
        attempt=0,
        attempts=1,
        seed=seed,
        text="Good morning.",
        prefix=(),
        tokens=tokens,
        verdict=Inspection(keep=frames, reason="clean", suspect=False),
        n_generated=frames,
        hit_cap=False,
        hit_window=False,
        ended=True,
    )


NULL_IDENTITY = ExecutionIdentity(
    torch="none",
    numpy="none",
    device="cpu",
    capability="none",
    dtype="float32",
    threads=1,
    row_padding=4,
    matmul_tf32=False,
    cudnn_tf32=False,
    packed_weights=False,
    compile_model=False,
    cuda_graphs=False,
    probe="0" * 16,
)


class NullRenderer:
    """Answers as `Renderer` does and computes nothing: three windows a passage, a short file.

    What it makes depends on the job alone, so that two runs can be compared byte for byte. It is
    for the driver, which cannot tell it from an engine.
    """

    WINDOWS = 3
    FRAMES = 20

    def __init__(self, spec: object) -> None:
        self._jobs: queue.SimpleQueue[PassageJob] = queue.SimpleQueue()

    def identity(self) -> ExecutionIdentity:
        """The same everywhere."""
        return NULL_IDENTITY

    def submit(self, jobs: Sequence[PassageJob]) -> None:
        """Queue passages."""
        for job in jobs:
            self._jobs.put(job)

    def poll(self, wait_s: float = 10.0) -> list[Event]:
        """The events of every job there is; waits for the first one."""
        events: list[Event] = []
        try:
            events += self.rendered(self._jobs.get(timeout=wait_s))
            while True:
                events += self.rendered(self._jobs.get_nowait())
        except queue.Empty:
            return events

    @classmethod
    def rendered(cls, job: PassageJob) -> list[Event]:
        """What becomes of one job."""
        events: list[Event] = []
        for chunk in range(len(job.done), cls.WINDOWS):
            window = finished_window_of(
                chunk_index=chunk, seed=derive(job.seed, chunk), frames=cls.FRAMES
            )
            events.append(WindowEvent(job.key, window))
        audio = sha256(f"{job.key} {job.text} {job.seed}".encode()).digest() * 32
        digest = sha256(audio).hexdigest()
        gates = AudioGates(peak_dbfs=-6.0, clipped_share=0.0, silent_share=0.0)
        events.append(PassageEvent(job.key, audio, digest, digest, 48_000, gates, audio[:120]))
        return events


class InProcessFleet:
    """Stands for `Fleet` with null engines and no processes: what happens is what `plan` decides.

    `plan(worker, job)` may return "die" to kill the worker with the job, or an error's code to fail
    it; None renders it. `identities` are those of the workers, in turn.
    """

    def __init__(
        self,
        spec: object,
        *,
        workers: int,
        plan: Callable[[str, PassageJob], str | None] = lambda worker, job: None,
        identities: Sequence[ExecutionIdentity] = (NULL_IDENTITY,),
        allow_mixed: bool = False,
        joined: Callable[[], None] = lambda: None,
        jobs_per_wait: int = 1,
        **_: object,
    ) -> None:
        self._jobs_per_wait = jobs_per_wait
        self._plan, self._identities, self._joined = plan, identities, joined
        self._queues: dict[str, list[PassageJob]] = {}
        self._executions: dict[str, str] = {}
        self._started = 0
        self._wanted = workers
        self.cohorts: dict[str, ExecutionIdentity] = {}
        self.turned_away: list[object] = []
        self.rendered_windows = 0

    def __enter__(self) -> Self:
        self._joined()
        for _ in range(self._wanted):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queues.clear()

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def is_growing(self) -> bool:
        return False

    def execution_of(self, worker: str) -> str:
        return self._executions[worker]

    def submit(self, worker: str, jobs: Sequence[PassageJob]) -> None:
        self._queues[worker] += jobs

    def wait(self, timeout_s: float) -> Iterator[tuple[str, list[Event]] | WorkerDied]:
        """`jobs_per_wait` jobs a worker and call."""
        for worker in list(self._queues) * self._jobs_per_wait:
            if not self._queues.get(worker):
                continue
            job = self._queues[worker].pop(0)
            fate = self._plan(worker, job)
            if fate == "die":
                del self._queues[worker]
                yield WorkerDied(worker, "it was planned")
                self._start()
            elif fate is not None:
                yield worker, [FailureEvent(job.key, fate, "it was planned", retryable=False)]
            else:
                events = NullRenderer.rendered(job)
                self.rendered_windows += len(events) - 1
                yield worker, events

    def _start(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        identity = self._identities[(self._started - 1) % len(self._identities)]
        self._executions[name] = identity.digest()
        self.cohorts.setdefault(identity.digest(), identity)
        self._queues[name] = []
