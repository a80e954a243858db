"""The name in a certificate, as Java's `X500Principal.getName()` writes it: Kafka's ACLs have names of that form.

It is the form of RFC 2253, with the keywords of that RFC alone. Other attributes are an object identifier and the value
in DER, so they are read from the certificate itself. `ssl` gives them OpenSSL's names, and not the types of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_TAGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString. Java reads each of them as UTF-8."""
_VERSION_TAG = 0xA0
_SUBJECT = 4
"""The place of the subject, behind the serial number, the algorithm, the issuer and the validity."""
_LONG_FORM = 0x80
_SPECIAL = re.compile(r'[,=+<>#;"\\]')
_BLANKS_AT_THE_ENDS = re.compile(r"\A[ \r]+|[ \r]+\Z")


class _Element(NamedTuple):
    """One value in DER."""

    tag: int
    content: bytes
    encoding: bytes
    """All of it: the tag, the length and the content."""


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, the last part first. Raises ValueError for what is no such certificate."""
    try:
        (whole,) = _elements(certificate)
        signed = next(_elements(whole.content))
        fields = [element for element in _elements(signed.content) if element.tag != _VERSION_TAG]
        parts = ["+".join(map(_attribute, _elements(part.content))) for part in _elements(fields[_SUBJECT].content)]
    except (ValueError, IndexError, StopIteration):
        raise ValueError("the certificate is not in DER") from None
    return ",".join(reversed(parts))


def _elements(data: bytes) -> Iterator[_Element]:
    begin = 0
    while begin < len(data):
        tag, length = data[begin : begin + 2]
        content = begin + 2
        if length >= _LONG_FORM:
            content += length - _LONG_FORM
            length = int.from_bytes(data[begin + 2 : content], "big")
        end = content + length
        if end > len(data) or data[begin + 1] == _LONG_FORM:
            raise ValueError("a length is indefinite, or beyond the end")
        yield _Element(tag, data[content:end], data[begin:end])
        begin = end


def _attribute(attribute: _Element) -> str:
    identifier, value = _elements(attribute.content)
    name = _object_identifier(identifier.content)
    keyword = _KEYWORDS.get(name)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or name}=#{value.encoding.hex()}"
    text = _SPECIAL.sub(r"\\\g<0>", value.content.decode(errors="replace")).replace("\0", r"\00")
    return f"{keyword}={_BLANKS_AT_THE_ENDS.sub(_escaped, text)}"


def _escaped(blanks: re.Match[str]) -> str:
    return "".join(f"\\{blank}" for blank in blanks[0])


def _object_identifier(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < _LONG_FORM:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
