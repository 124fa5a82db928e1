"""What can be wrong with a token part: one that means something else, one that is not whole."""

from __future__ import annotations

from catalog.errors import CatalogError


class TokenPartError(CatalogError):
    """Base: a part of the token Parquet cannot be read or written as asked."""

    code = "token_part"


class TokenContractMismatchError(TokenPartError):
    """The ids of the file were minted under another token contract, or under none it names."""

    code = "contract_mismatch"


class TokenPartUnreadableError(TokenPartError):
    """The file is missing, torn, or no Parquet at all."""

    code = "token_part_unreadable"


class TokenPartLayoutError(TokenPartError):
    """The file names a contract, and its columns or its format are not the ones we know."""

    code = "token_part_layout"


class TokenRowError(TokenPartError):
    """A row does not fit the columns: an id beyond 32 bits, a seed beyond 64, half a surrogate."""

    code = "token_row"
