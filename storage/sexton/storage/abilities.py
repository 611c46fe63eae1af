"""What a bucket's store can do, as probed; and which keys it would take for others.

Unknown is never a yes: a condition that was not seen to be checked has not been checked, and an aliasing that
was not seen to be kept apart is taken to be folded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ALIASINGS", "Abilities", "Ability", "Aliasing", "Versioning", "has_dot_segments", "unprobed"]


class Ability(StrEnum):
    """An answer of the probe."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, answer: bool | None) -> Ability:
        """Return yes or no, unknown for None."""
        return cls.UNKNOWN if answer is None else cls.YES if answer else cls.NO


class Versioning(StrEnum):
    """The versioning state of a bucket."""

    OFF = "off"
    ON = "on"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Aliasing:
    """A kind of key that some stores take for another key.

    `pairs` are an odd key and its sibling below a common prefix ({p}, which ends in `/`): deleting the first
    must leave the second. `holds` says whether a key is of this kind; `may_hold` whether any of many keys
    (in UTF-8, joined by U+0000) could be: quick, and true too often rather than too seldom. A `strict` kind
    is known to be folded by stores in use: unless it was seen to be kept apart, it is not sent. The others
    are refused where they were seen to be folded; and, but for `common` ones, while nobody has looked and the
    caller is strict. What `xml` is False for never stands in a batch.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    holds: Callable[[str], bool]
    may_hold: Callable[[bytes], bool] = lambda raw: True
    strict: bool = False
    xml: bool = True
    common: bool = False


_DOTS = re.compile(r"(?:^|/)\.\.?(?:/|$)")
_PERCENT = re.compile("%[0-9A-Fa-f]{2}")


def has_dot_segments(key: str) -> bool:
    """Return whether a segment of the key is `.` or `..`: what HTTP proxies and file systems resolve."""
    return bool(_DOTS.search(key))


def _may_have_dots(raw: bytes) -> bool:
    # The single dot is found at memchr's speed, and most keys have none in such a place.
    return b"." in raw and (raw[:1] == b"." or any(part in raw for part in (b"/.", b"./", b"\0.", b".\0")))


def _may_have_bare_slash(raw: bytes) -> bool:
    # One search for both kinds, in a sixth of the time of a regular expression.
    return raw[:1] == b"/" or b"//" in raw.replace(b"\0", b"/")


def _may_have_outer_space(raw: bytes) -> bool:
    # Any white space at all, or what is not ASCII and may be white space.
    return not raw.isascii() or len(raw.split(None, 1)) > 1 or raw != raw.strip()


def _has_other_form(key: str) -> bool:
    if key.isascii():
        return False
    return unicodedata.normalize("NFC", key) != key or unicodedata.normalize("NFD", key) != key


ALIASINGS = (
    Aliasing(
        "dot segments",
        (("{p}dots/a/../b", "{p}dots/b"), ("{p}dots/./c", "{p}dots/c")),
        has_dot_segments,
        _may_have_dots,
        strict=True,
    ),
    Aliasing(
        "double slash",
        (("{p}twice//b", "{p}twice/b"),),
        lambda key: "//" in key,
        _may_have_bare_slash,
        strict=True,
    ),
    Aliasing(
        "leading slash",
        (("/{p}lead", "{p}lead"),),
        lambda key: key.startswith("/"),
        _may_have_bare_slash,
        strict=True,
    ),
    Aliasing(
        "backslash",
        (("{p}back\\b", "{p}back/b"),),
        lambda key: "\\" in key,
        lambda raw: b"\\" in raw,
        strict=True,
    ),
    Aliasing(
        "trailing slash",
        (("{p}tail/", "{p}tail"),),
        lambda key: key.endswith("/"),
        lambda raw: raw[-1:] == b"/" or b"/\0" in raw,
    ),
    Aliasing(
        "percent",
        (("{p}percent%2Fb", "{p}percent/b"),),
        lambda key: bool(_PERCENT.search(key)),
        lambda raw: b"%" in raw,
    ),
    Aliasing(
        "plus and space",
        (("{p}a+b", "{p}a b"), ("{p}a c", "{p}a+c")),
        lambda key: bool({*key} & {*" +"}),
        lambda raw: b"+" in raw or b" " in raw,
    ),
    Aliasing(
        "outer space", (("{p}outer ", "{p}outer"),), lambda key: key != key.strip(), _may_have_outer_space
    ),
    Aliasing("normal form", (("{p}e\u0301", "{p}\u00e9"),), _has_other_form, lambda raw: not raw.isascii()),
    Aliasing("letter case", (("{p}CASE", "{p}case"),), lambda key: key.lower() != key.upper(), common=True),
    Aliasing(
        "line ends",
        (("{p}line\rb", "{p}line\nb"), ("{p}line\rc", "{p}linec")),
        lambda key: "\r" in key or "\n" in key,
        xml=False,
    ),
)
"""Kinds of keys that some store folds into another one."""


_SPELLED_ALIKE = re.compile(r"[A-Za-z0-9._/-]*")  # RFC 3986's unreserved characters but `~`, and the slash


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the store of one bucket can do.

    `batch_keeps` and `single_keeps` name the aliasings that DeleteObjects and DeleteObject were seen to keep
    apart from their siblings, `batch_aliases` and `single_aliases` those where the sibling went.
    `batch_erases` and `single_erases` say whether they erase the version that is named, and no other.
    `refuses_1001` says that a batch of more than 1,000 keys was refused, `keeps_folders` that deleting `k`
    leaves the object `k/`: where it does not, that one is verified first. `conditional_writes` says that of
    writers who raced exactly one won, `writes_detail` what was seen else. `why_unknown` says what could not
    be tried. Who is `strict` trusts no odd aliasing that was not seen to be kept.
    """

    bucket: str
    crc32: Ability = Ability.UNKNOWN
    md5: Ability = Ability.UNKNOWN
    refuses_1001: Ability = Ability.UNKNOWN
    batch_condition: Ability = Ability.UNKNOWN
    single_condition: Ability = Ability.UNKNOWN
    batch_erases: Ability = Ability.UNKNOWN
    single_erases: Ability = Ability.UNKNOWN
    batch_keeps: frozenset[str] = frozenset()
    batch_aliases: frozenset[str] = frozenset()
    single_keeps: frozenset[str] = frozenset()
    single_aliases: frozenset[str] = frozenset()
    versioning: Versioning = Versioning.UNKNOWN
    object_lock: Ability = Ability.UNKNOWN
    lists_in_order: Ability = Ability.UNKNOWN
    lists_exactly: Ability = Ability.UNKNOWN
    keeps_folders: Ability = Ability.UNKNOWN
    conditional_writes: Ability = Ability.UNKNOWN
    writes_detail: str = ""
    why_unknown: tuple[str, ...] = ()
    strict: bool = False

    def summary(self) -> str:
        """Return what was found in one line, for a person."""
        refused = [s.name for s in ALIASINGS if self._distrusts(s, self.single_keeps, self.single_aliases)]
        facts = {
            "CRC32": self.crc32,
            "Content-MD5": self.md5,
            "conditional batch": self.batch_condition,
            "conditional delete": self.single_condition,
            "erases versions": self.batch_erases
            if self.batch_erases is not Ability.NO
            else self.single_erases,
            "versioning": self.versioning,
            "object lock": self.object_lock,
            "refuses 1,001 keys": self.refuses_1001,
            "lists in order": self.lists_in_order,
            "lists exactly": self.lists_exactly,
            "keeps folder objects": self.keeps_folders,
            "conditional writes": self.conditional_writes
            + (f" ({self.writes_detail})" if self.writes_detail else ""),
            "aliasings refused": ", ".join(refused) or "none",
        }
        unknown = f"; not tried: {'; '.join(self.why_unknown)}" if self.why_unknown else ""
        return "; ".join(f"{name}: {answer}" for name, answer in facts.items()) + unknown

    def may_fold(self, raw: bytes) -> bool:
        """Tell, quickly, whether any of many keys (UTF-8, joined by U+0000) could be folded by a batch."""
        looks = {
            aliasing.may_hold
            for aliasing in ALIASINGS
            if aliasing.xml and self._distrusts(aliasing, self.batch_keeps, self.batch_aliases)
        }
        return any(may_hold(raw) for may_hold in looks)

    def aliasing_of(self, key: str, *, batch: bool) -> str | None:
        """Return the aliasing by which the key would be, or might be, taken for another; None or None."""
        keeps, aliases = (
            (self.batch_keeps, self.batch_aliases) if batch else (self.single_keeps, self.single_aliases)
        )
        for aliasing in ALIASINGS:
            if self._distrusts(aliasing, keeps, aliases) and aliasing.holds(key):
                return aliasing.name
        return None

    def erases(self, *, batch: bool) -> bool:
        """Return whether a version may be named: some stores make a marker then, in place of erasing it.

        Not where that was seen, nor while nobody has looked and the caller is strict.
        """
        seen = self.batch_erases if batch else self.single_erases
        return seen is Ability.YES or (seen is Ability.UNKNOWN and not self.strict)

    def lists(self, key: str) -> bool:
        """Return whether a listing that shows this name means this key, and none by another name hides it.

        Some stores list keys percent-encoded without saying so, or a space as they list a plus. A name of
        letters, digits and `._/-` alone is the same in each of these; others need a listing that was seen to
        be exact.
        """
        return self.lists_exactly is Ability.YES or bool(_SPELLED_ALIKE.fullmatch(key))

    def _distrusts(self, aliasing: Aliasing, keeps: frozenset[str], aliases: frozenset[str]) -> bool:
        doubtful = aliasing.strict or (self.strict and not aliasing.common)
        return aliasing.name in aliases or (doubtful and aliasing.name not in keeps)


def unprobed(bucket: str, *, is_aws: bool = False) -> Abilities:
    """Return what is known of a bucket that was not probed: nothing, but that AWS keeps keys byte for byte.

    It keeps every aliasing apart, goes by version ids, and with EncodingType lists every key exactly (S3 API
    Reference).
    """
    kept = frozenset(aliasing.name for aliasing in ALIASINGS) if is_aws else frozenset()
    yes = Ability.YES if is_aws else Ability.UNKNOWN
    return Abilities(
        bucket,
        batch_keeps=kept,
        single_keeps=kept,
        batch_erases=yes,
        single_erases=yes,
        lists_exactly=yes,
        why_unknown=("not probed",),
    )
