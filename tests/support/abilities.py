"""What a deleter knows of a faithful store without having probed it."""

from __future__ import annotations

from sexton.storage import ALIASINGS, Abilities, Ability, Versioning

_ALL = frozenset(aliasing.name for aliasing in ALIASINGS)


def knowing(
    bucket: str,
    versioning: Versioning = Versioning.OFF,
    locks: Ability = Ability.NO,
    in_order: Ability = Ability.YES,
) -> Abilities:
    """Return the abilities of a faithful store."""
    return Abilities(
        bucket,
        crc32=Ability.YES,
        batch_keeps=_ALL,
        single_keeps=_ALL,
        versioning=versioning,
        object_lock=locks,
        lists_in_order=in_order,
        lists_exactly=Ability.YES,
    )
