"""Refusals of the job, and the exit code that every error of any room stands for."""

from __future__ import annotations

from typing import ClassVar, Final


class JobError(Exception):
    """Base of what the jobs and workers refuse on purpose."""

    code: ClassVar[str] = "job_error"
    retryable: ClassVar[bool] = False


class LedgerError(JobError):
    """A ledger segment cannot be read."""

    code = "ledger_unreadable"


class OutputBusyError(JobError):
    """Another job is writing into the same output."""

    code = "output_busy"
    retryable = True


class OutputLostError(JobError):
    """Another job has taken the output over: this one was thought dead."""

    code = "output_lost"
    retryable = True


class CatalogRefusedError(JobError):
    """The catalog asks the pack for something that it does not have."""

    code = "catalog_refused"


class OutputPlaceError(JobError):
    """What was given as output is none for this command."""

    code = "output_place"


class ExecutionPolicyError(JobError):
    """What was asked of execution identities is no policy."""

    code = "execution_policy"


DONE: Final = 0
BAD_USAGE: Final = 2
SOME_FAILED: Final = 3
MISMATCH: Final = 4
INTERRUPTED: Final = 130

_MISMATCHES: Final = frozenset({"pack_mismatch", "contract_mismatch", "identity_mismatch"})


def exit_code_for(code: str) -> int:
    """The documented exit code of an error that ends the whole command."""
    return MISMATCH if code in _MISMATCHES else BAD_USAGE
