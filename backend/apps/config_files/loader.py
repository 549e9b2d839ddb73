"""YAML texts as documents."""

import math
from typing import Any

import yaml

from backend.domain import screening
from backend.domain.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Refuses names that an object has twice, of which PyYAML keeps the last without a word (YAML 1.2.2, 3.2.1.1), and
    knows which numbers it rounds."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in seen:
                text = f"the name {key.value} occurs more than once in its object"
                raise yaml.MarkedYAMLError(problem=text, problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        number: float = super().construct_yaml_float(node)
        text = node.value.replace("_", "")
        is_decimal = math.isfinite(number) and ":" not in text  # a colon is between digits to the base of 60
        return screening.decimal_number(text) if is_decimal else number


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def load_all(text: str, source: str = "") -> list[Any]:
    """The documents of a YAML text that are not empty, screened. Raises ConfigError, whose paths begin with the source,
    or with the document's number."""
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except RecursionError:
        raise ConfigError({source or "yaml": [screening.DEEP]}) from None
    # Among Python's ValueErrors are dates such as 2024-13-45 and integers of thousands of digits.
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError({source or "yaml": [f"This is not YAML: {' '.join(str(error).split())}."]}) from None
    for index, document in enumerate(documents):
        screening.check(document, source or str(index))
    return documents
