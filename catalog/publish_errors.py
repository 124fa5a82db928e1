"""What can be wrong with a published roster, or keep one from being published."""

from __future__ import annotations

from catalog.errors import CatalogError


class RosterUnreadableError(CatalogError):
    """The pointer, or a release that should be whole, cannot be read."""

    code = "roster_unreadable"


class PublishRaceError(CatalogError):
    """Others published in our place each time that we tried; what we had is planned anew."""

    code = "publish_race"
    retryable = True


class PublishConflictError(CatalogError):
    """Somebody else has meanwhile published other recordings of the same clips."""

    code = "publish_conflict"


class PublishSourceError(CatalogError):
    """What should be published is not what its records say."""

    code = "publish_source"


class NoSuchReleaseError(CatalogError):
    """There is no such release, or not all of it any more."""

    code = "no_such_release"
