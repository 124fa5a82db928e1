"""Joining a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import logging
import os
import secrets
import socket

from workers.errors import FleetStoppedError, FleetUnavailableError

_CONNECT_S = 5.0


def join_cluster(address: str | None, *, cpus_needed: int) -> bool:
    """Join the cluster at an address, or start a local one; whether it is ours to shut down.

    Raises `FleetUnavailableError`, and `FleetStoppedError` when a signal came meanwhile.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = address is None
    if local:
        # Ray's local ports listen on every interface: only holders of this token get in.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    if ray.is_initialized():
        return False
    if address is not None:
        _require_listener(address)
    try:
        ray.init(
            address="local" if local else address,
            include_dashboard=False if local else None,
            # Asking for more workers than there are cores is slow, not wrong.
            num_cpus=max(os.cpu_count() or 1, cpus_needed) if local else None,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=False,
        )
    except (SystemExit, KeyboardInterrupt):
        # Ray's own signal handlers, which it puts in place before it has started.
        ray.shutdown()
        raise FleetStoppedError("asked to stop while Ray was starting") from None
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise FleetUnavailableError(
            f"no Ray cluster at {address or 'this machine'}: {first_line(error)}"
        ) from error
    return True


def _require_listener(address: str) -> None:
    """A head that does not answer at once would keep Ray trying for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        return  # "auto" and the like: Ray knows where to look
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise FleetUnavailableError(f"no Ray cluster answers at {address}: {error}") from error


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
