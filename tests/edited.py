"""Documents that somebody has edited, by what was changed in them."""

import copy
import functools
import json
import operator
from typing import Any


def edited(document: Any, *changes: str) -> Any:
    """Return a copy with changes such as ``common.p10 = null`` and ``runs.0 removed``: JSON at a place, or nothing there any more."""
    document = copy.deepcopy(document)
    for change in changes:
        place, _, value = change.partition(" = ")
        *parents, last = (int(name) if name.isdigit() else name for name in place.removesuffix(" removed").split("."))
        parent = functools.reduce(operator.getitem, parents, document)
        if value:
            parent[last] = json.loads(value)
        else:
            del parent[last]
    return document
