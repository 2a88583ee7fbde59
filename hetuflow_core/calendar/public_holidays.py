"""Public holidays of countries, their regions and of markets: `DE`, `DE-BY`, `XNYS`.

They come from the package `holidays`, a large dependency of the server, which is imported on first use. Names
are in English where available.
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
    """`HolidaySets` from the package."""

    def days(self, name: str, year: int) -> Mapping[date, str]:
        return _days(name, year)

    def check(self, name: str) -> None:
        """Raise `Invalid` with a suggestion if the name is unknown."""
        country, _, region = name.partition("-")
        regions = _known().get(country)
        if not _NAME.fullmatch(name) or regions is None:
            close = get_close_matches(country.upper()[:_SHOWN], _known(), 1)
            hint = (
                f'did you mean "{close[0]}"?'
                if close
                else "write a country such as DE, or a market such as XNYS."
            )
            raise Invalid(f'"{name[:_SHOWN]}" is not a known set of holidays: {hint}')
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
        # Some countries announce holidays only a few years ahead; unknown future holidays are not an error.
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
    import holidays  # noqa: PLC0415 (only servers install it, and it loads slowly)

    return holidays
