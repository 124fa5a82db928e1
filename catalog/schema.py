"""What a catalog.yaml may say: strict, frozen models whose every refusal can be traced to a key."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from catalog.errors import show
from catalog.names import name_fault

MAX_SEED = 2**64 - 1
MAX_PATTERN_LENGTH = 400
"""Twice a name: what a pattern costs grows with the square of its length."""

MAX_RULES = 1000
"""Every rule is held against every passage."""

FORMATS = ("flac", "wav", "opus", "mp3")
DEFAULT_SEED = 0
DEFAULT_LANGUAGE = "en"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _refuse(message: str, *, key: str = "") -> PydanticCustomError:
    # The message travels as context: braces in it would be read as pydantic's placeholders.
    return PydanticCustomError("catalog", "{told}", {"told": message, "key": key})


def _name(value: str) -> str:
    if fault := name_fault(value):
        raise _refuse(f"{fault}, got {show(value)}")
    return value


def _line(value: str) -> str:
    if not value.strip():
        raise _refuse("expected a text that is not empty; leave the key out when there is none")
    if _CONTROL.search(value):
        raise _refuse(f"expected one line without control characters, got {show(value)}")
    return value


def _spoken(value: str) -> str:
    if not value.strip():
        raise _refuse("expected what the voice says, got a text without a word")
    return value


def _language(value: str) -> str:
    if not _LANGUAGE.fullmatch(value):
        raise _refuse(f'expected a language tag such as "en" or "pt-BR", got {show(value)}')
    return value


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise _refuse(f"expected the 64 lower-case hex digits of a sha256, got {show(value)}")
    return value


def _glob(value: str) -> str:
    if not value or "/" in value:
        raise _refuse(f'expected a pattern of one name such as "*" or "s*", got {show(value)}')
    if len(value) > MAX_PATTERN_LENGTH:
        raise _refuse(
            f"expected a pattern of at most {MAX_PATTERN_LENGTH} characters, got {show(value)}"
        )
    return _line(value)


Name = Annotated[str, AfterValidator(_name)]
Line = Annotated[str, AfterValidator(_line)]
Language = Annotated[str, AfterValidator(_language)]
Sha256 = Annotated[str, AfterValidator(_sha256)]
Glob = Annotated[str, AfterValidator(_glob)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Format = Literal["flac", "wav", "opus", "mp3"]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class PackPath(_Model):
    """A pack folder and the sha256 that it must have."""

    path: Line
    sha256: Sha256


class Defaults(_Model):
    """What holds wherever a voice, a passage or a rule of `renders` says nothing else."""

    seed: Seed = DEFAULT_SEED
    language: Language = DEFAULT_LANGUAGE
    format: Format = "flac"
    style: Line | None = None


class Source(_Model):
    """Whose voice it is, and by what right it is used; recorded with every clip."""

    name: Line
    url: Line
    license: Line
    consent: Line


class Voice(_Model):
    """One speaker of the roster.

    `language` is a tag; where `language_id` carries the tag, `language` is the name for people.
    """

    name: Name
    display_name: Line | None = None
    speaker: Line | None = None
    style: Line | None = None
    accent: Line | None = None
    env: Line | None = None
    language: Line | None = None
    language_id: Language | None = None
    description: str = ""
    seed: Seed | None = None
    status: Line = "available"
    source: Source | None = None

    @property
    def title(self) -> str:
        """The name for people."""
        return self.display_name or self.name

    @property
    def conditioned_as(self) -> str:
        """The speaker of the pack that this voice is."""
        return self.speaker or self.name

    @model_validator(mode="after")
    def _language_has_a_tag(self) -> Voice:
        if self.language is not None and self.language_id is None:
            try:
                _language(self.language)
            except PydanticCustomError as error:
                told = f"{error.message()}; a name goes with language_id: TAG"
                raise _refuse(told, key="language") from None
        return self


class Turn(_Model):
    """One turn of a dialogue: what a voice of this catalog says."""

    voice: Name
    text: Annotated[str, AfterValidator(_spoken)]


class Passage(_Model):
    """A text to be spoken: given here, in a file beside the catalog, or as the turns of voices."""

    id: Name
    text: str | None = None
    text_file: Line | None = None
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)] | None = None
    style: Line | None = None
    language: Language | None = None
    seed: Seed | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Passage:
        given = [key for key in ("text", "text_file", "turns") if getattr(self, key) is not None]
        if len(given) != 1:
            how_many = f"has {' and '.join(given)}" if given else "has none"
            told = f"expected one of text, text_file or turns, passage {show(self.id)} {how_many}"
            raise _refuse(told)
        if self.turns and self.style:
            told = "a dialogue's prompt names its speakers and nothing else; leave style out"
            raise _refuse(told, key="style")
        return self


class PassageSource(_Model):
    """Passages from a Parquet file; `id` and `text` name its columns."""

    file: Line = Field(alias="from")
    id: Line
    text: Line


class RenderRule(_Model):
    """Which passages which voices speak, and from what seed."""

    voice: Glob
    passage: Glob
    seed: Seed | None = None


def _kind_of_passage(value: Any) -> str:
    return "source" if isinstance(value, dict) and "from" in value else "passage"


def _kind_of_renders(value: Any) -> str:
    return "rules" if isinstance(value, tuple) else "all"


def _kind_of_pack(value: Any) -> str:
    return "path" if isinstance(value, dict) else "name"


AnyPassage = Annotated[
    Annotated[Passage, Tag("passage")] | Annotated[PassageSource, Tag("source")],
    Discriminator(_kind_of_passage),
]
Renders = Annotated[
    Annotated[Literal["all"], Tag("all")]
    | Annotated[tuple[RenderRule, ...], Field(min_length=1, max_length=MAX_RULES), Tag("rules")],
    Discriminator(_kind_of_renders),
]
PackRef = Annotated[
    Annotated[Line, Tag("name")] | Annotated[PackPath, Tag("path")],
    Discriminator(_kind_of_pack),
]


class Catalog(_Model):
    """A whole catalog.yaml. `catalog` is its name and the default folder of its output."""

    catalog: Name
    pack: PackRef
    defaults: Defaults = Defaults()
    voices: Annotated[tuple[Voice, ...], Field(min_length=1)]
    passages: Annotated[tuple[AnyPassage, ...], Field(min_length=1)]
    renders: Renders = "all"

    @property
    def pack_name(self) -> str:
        """A bundled name or a folder, as it was written."""
        return self.pack if isinstance(self.pack, str) else self.pack.path

    def language_id(self, voice: Voice) -> str:
        """The tag of the language that the voice speaks when a passage says nothing."""
        return voice.language_id or voice.language or self.defaults.language

    @property
    def pack_sha256(self) -> str | None:
        """The sha256 that the pack must have, when the catalog demands one."""
        return None if isinstance(self.pack, str) else self.pack.sha256
