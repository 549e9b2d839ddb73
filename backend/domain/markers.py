"""Marker files: empty files beside others, which say that those are complete."""

import re

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_EXTENSION = re.compile(r"(?<=.)(\.[A-Za-z0-9]+)?(?:\.(?:gz|gzip|zst|zstd))?$")
_DATA = re.compile(r"\.(?:jsonl|csv|parquet|avro|manifest\.json)(?:\.(?:gz|zst))?$")
_PLACEHOLDERS = ("name", "stem")


def checked_marker(template: str) -> str:
    """The name of marker files, or nothing for none. Raises ValueError."""
    if not template:
        return template
    if unknown := sorted(set(_PLACEHOLDER.findall(template)) - set(_PLACEHOLDERS)):
        raise ValueError(f"There is no placeholder {{{unknown[0]}}}. There are {{name}} and {{stem}}.")
    literal = _PLACEHOLDER.sub("", template)
    if not literal:
        raise ValueError("A marker's name has to differ from the file's, as {name}.done does.")
    if re.search(r"[^\w.=-]", literal, re.ASCII) or template in (".", ".."):
        raise ValueError(
            "A marker's name consists of letters, digits, {name}, {stem} and . _ - = without folders: it lies beside "
            "its file."
        )
    return template


def checked_new_marker(template: str) -> str:
    """The same for markers that are written beside exports, whose names end with their formats. Raises ValueError."""
    checked_marker(template)
    if template.endswith("{name}") or _DATA.search(template):
        raise ValueError("A marker must not end as files and manifests do: end it otherwise, as {name}.done does.")
    return template


def marker_of(template: str, path: str) -> str:
    """The path of a file's marker: {name} is the file's name, {stem} the name without its extension."""
    folder, slash, name = path.rpartition("/")
    values = {"name": name, "stem": _EXTENSION.sub("", name)}
    return folder + slash + _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], template)


def is_marker(template: str, path: str) -> bool:
    """Whether the file is named as markers are."""
    parts = _PLACEHOLDER.split(template)[::2]  # the text around the placeholders
    pattern = ".+".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, path.rpartition("/")[2], re.DOTALL) is not None
