"""The words of the language."""

import re
from functools import lru_cache
from pathlib import Path

WORD = re.compile(r'"([A-Z]+)"i')
"""A keyword in the grammar."""

_KEPT = "SOURCE SINK TERMINATE PAUSE RESUME RESTART EXTENDED CONNECTORS PLUGINS STREAMS TABLES TOPICS QUERIES SECRETS "
_KEPT += "VARIABLES STREAM TABLE PRIMARY KEY ALL BEGINNING INNER LEFT RIGHT FULL CHANGES FINAL NOT TRUE FALSE NULL"
KEPT_WORDS = tuple(_KEPT.split())
"""Keywords that stay in the tree of a statement."""


def keywords() -> frozenset[str]:
    """Every word that means something in some place, in upper case."""
    return frozenset(WORD.findall(grammar())) | frozenset(KEPT_WORDS)


@lru_cache
def grammar() -> str:
    """In the language of the parser's library."""
    return (Path(__file__).parent / "grammar.lark").read_text()
