"""Public holidays of countries, their regions and of markets: `DE`, `DE-BY`, `XNYS`.

They come from the package `holidays`. It is large and belongs to the server's dependencies, so it is loaded
when a calendar first asks for one; names are in English where it has them, whatever the host's language is.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from hetuflow_core.errors import Invalid

_NAME: Final = re.compile(r"[A-Z0-9]{2,6}(-[A-Za-z0-9 .'-]{1,40})?")
_LANGUAGE: Final = "en_US"
_SHOWN: Final = 40
_YEARS_KEPT: Final = 2048


class PublicHolidays:
    """`HolidaySets` of the package."""

    def days(self, name: str, year: int) -> Mapping[date, str]:
        return _days(name, year)

    def check(self, name: str) -> None:
        """Raise `Invalid` with a suggestion unless there are holidays of that name."""
        country, _, region = name.partition("-")
        regions = _known().get(country)
        if not _NAME.fullmatch(name) or regions is None:
            close = get_close_matches(country.upper()[:_SHOWN], _known(), 1)
            hint = (
                f'did you mean "{close[0]}"?'
                if close
                else "write a country such as DE, or a market such as XNYS."
            )
            raise Invalid(f'there are no holidays called "{name[:_SHOWN]}": {hint}')
        if region and region not in regions:
            some = f"use {', '.join(regions[:_MOST_SHOWN])}" if regions else f"write {country}"
            raise Invalid(f'{country} has no region "{region[:_SHOWN]}": {some}.')


_MOST_SHOWN: Final = 20


@lru_cache(maxsize=_YEARS_KEPT)
def _days(name: str, year: int) -> Mapping[date, str]:
    country, _, region = name.partition("-")
    package = _package()
    make = package.financial_holidays if country in _markets() else package.country_holidays
    with warnings.catch_warnings():
        # Some countries announce theirs a few years ahead only; what is not known yet is no error.
        warnings.simplefilter("ignore")
        bare: Any = make(country, subdiv=region or None)
        language = _LANGUAGE if _LANGUAGE in bare.supported_languages else bare.default_language
        return dict(make(country, subdiv=region or None, years=year, language=language).items())


@lru_cache(maxsize=1)
def _known() -> Mapping[str, list[str]]:
    return {**_package().list_supported_countries(), **_markets()}


@lru_cache(maxsize=1)
def _markets() -> Mapping[str, list[str]]:
    markets: Mapping[str, list[str]] = _package().list_supported_financial()
    return markets


def _package() -> ModuleType:
    import holidays  # noqa: PLC0415 (only servers install it, and it takes long to load)

    return holidays
