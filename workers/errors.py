"""What the fleet refuses, and how a worker's death is told."""

from __future__ import annotations

from typing import ClassVar


class WorkerError(Exception):
    """Base of the errors of the workers' room."""

    code: ClassVar[str] = "worker_error"
    retryable: ClassVar[bool] = True


class WorkerBrokenError(WorkerError):
    """A worker's engine ended, and the worker with it."""

    code = "worker_broken"


class IdentityMismatchError(WorkerError):
    """Two workers would compute different last bits."""

    code = "identity_mismatch"
    retryable = False


class FleetStoppedError(WorkerError):
    """Starting was given up because somebody asked to stop."""

    code = "fleet_stopped"


class FleetUnavailableError(WorkerError):
    """No cluster, or not enough of it, to start a single worker."""

    code = "fleet_unavailable"
