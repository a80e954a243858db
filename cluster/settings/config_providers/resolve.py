"""Replaces `${provider:path:key}` in properties by what the providers say (KIP-297, KIP-632, KIP-887).

`config.providers` names them, and `config.providers.<name>.class` says what they are, by Kafka's class names. A
variable that names no provider stays as it is. A value that a provider cannot give is an error: Apache Kafka keeps the
text of the variable, and the node would start with it as its password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from ....runtime.os_errors import os_words
from ....wire.config_def import SecretText
from ..properties import parse_properties

PROVIDERS_KEY = "config.providers"
_PREFIX = f"{PROVIDERS_KEY}."
_VARIABLE = re.compile(r"\$\{(?P<provider>[^}]*?):(?:(?P<path>[^}]*?):)?(?P<key>[^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
ReadFile = Callable[[str], bytes]
"""Reads a file. Raises OSError."""


class ConfigProviderError(ValueError):
    """A variable that has no value. `key` is the setting; the text says why, and has no value of a provider."""

    def __init__(self, key: str, reason: str, way_out: str) -> None:
        super().__init__(f"{key}: {reason}; {way_out}")
        self.key = key
        self.reason = reason
        self.way_out = way_out


class _NoValueError(Exception):
    """Why a provider has no value, in words that follow the variable."""


_Provider = Callable[[str, str], str]
"""The value of a path and a key. Raises `_NoValueError`."""


def is_of_provider(name: str) -> bool:
    """Whether a setting says what a provider is."""
    return name.startswith(_PREFIX)


def resolve(properties: Mapping[str, str], read: ReadFile, environ: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values of the providers, without the settings of these.

    Values of providers are `SecretText`. Raises `ConfigProviderError`.
    """
    names = [name.strip() for name in properties.get(PROVIDERS_KEY, "").split(",") if name.strip()]
    providers = {name: _provider(name, properties, read, environ) for name in names}
    return {
        key: value if key == PROVIDERS_KEY else _resolved(key, value, providers)
        for key, value in properties.items()
        if not is_of_provider(key)
    }


def _resolved(key: str, text: str, providers: Mapping[str, _Provider]) -> str:
    parts = list(_parts(key, text, providers))
    return text if all(not isinstance(part, SecretText) for part in parts) else SecretText("".join(parts))


def _parts(key: str, text: str, providers: Mapping[str, _Provider]) -> Iterator[str]:
    at = 0
    for match in _VARIABLE.finditer(text):
        provider = providers.get(match["provider"])
        if provider is None:
            continue
        yield text[at : match.start()]
        at = match.end()
        try:
            yield SecretText(provider(match["path"] or "", match["key"]))
        except _NoValueError as error:
            raise ConfigProviderError(key, f"{match[0]} has no value: {error}", "correct it") from None
    yield text[at:]


def _provider(name: str, properties: Mapping[str, str], read: ReadFile, environ: Mapping[str, str]) -> _Provider:
    class_key = f"{_PREFIX}{name}.class"
    class_name = properties.get(class_key, "").strip()
    param = f"{_PREFIX}{name}.param."
    paths = properties.get(f"{param}allowed.paths", "")
    allowed = [os.path.normpath(one.strip()) for one in paths.split(",") if one.strip()]
    kind = class_name.removeprefix(_PACKAGE)
    if kind == "FileConfigProvider":
        return lambda path, key: _of_file(_allowed(path, allowed), key, read)
    if kind == "DirectoryConfigProvider":
        return lambda path, key: _of_directory(_allowed(path, allowed), key, read)
    if kind == "EnvVarConfigProvider":
        pattern_key = f"{param}allowlist.pattern"
        try:
            pattern = re.compile(properties.get(pattern_key, ".*"))
        except re.error:
            raise ConfigProviderError(pattern_key, "it is not a regular expression", "correct it") from None
        return lambda path, key: _of_environment(path, key, pattern, environ)
    classes = ", ".join(f"{_PACKAGE}{one}ConfigProvider" for one in ("File", "Directory", "EnvVar"))
    reason = f"{class_name} is not served" if class_name else f"it is not set, and {PROVIDERS_KEY} names {name}"
    raise ConfigProviderError(class_key, reason, f"set one of {classes}")


def _allowed(path: str, allowed: list[str]) -> str:
    normal = os.path.normpath(path)
    if allowed and not any(normal == one or normal.startswith(one.rstrip("/") + "/") for one in allowed):
        raise _NoValueError(f"{path} is not below one of allowed.paths")
    return normal


def _text(path: str, read: ReadFile) -> str:
    try:
        return read(path).decode()
    except OSError as error:
        raise _NoValueError(f"cannot read {path}: {os_words(error)}") from None
    except UnicodeDecodeError:
        raise _NoValueError(f"{path} is not a text file") from None


def _of_file(path: str, key: str, read: ReadFile) -> str:
    try:
        values = parse_properties(_text(path, read))
    except ValueError:
        raise _NoValueError(f"{path} is not a file of properties") from None
    if key not in values:
        raise _NoValueError(f"{path} has no line {key}=")
    return values[key]


def _of_directory(path: str, key: str, read: ReadFile) -> str:
    if "/" in key or key in ("", ".", ".."):
        raise _NoValueError(f"{key} is not the name of a file in {path}")
    return _text(f"{path}/{key}", read)


def _of_environment(path: str, key: str, pattern: re.Pattern[str], environ: Mapping[str, str]) -> str:
    if path:
        raise _NoValueError("a variable of the environment has no path")
    if pattern.fullmatch(key) is None:
        raise _NoValueError(f"{key} does not match allowlist.pattern")
    if key not in environ:
        raise _NoValueError(f"the environment has no variable {key}")
    return environ[key]
