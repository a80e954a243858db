"""Names in certificates as Java's X500Principal.getName() writes them; what it writes was measured with OpenJDK 17."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cryptography.x509 import NameAttribute, NameOID, ObjectIdentifier
from cryptography.x509.name import _ASN1Type as Type
from support.security.certificates import certificate_named

from raftwerk.security.tls.distinguished_names import distinguished_name

COMMON_NAME = NameOID.COMMON_NAME
PRIVATE = ObjectIdentifier("1.2.840.113556.1.4.999999")
ALICE = (NameAttribute(COMMON_NAME, "alice"),)


def name_of(*parts: Sequence[NameAttribute[str]]) -> str:
    return distinguished_name(certificate_named(*parts))


def test_the_last_part_comes_first() -> None:
    country, organization = NameAttribute(NameOID.COUNTRY_NAME, "CH"), NameAttribute(NameOID.ORGANIZATION_NAME, "Acme")
    unit = NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Data")
    assert name_of((country,), (organization,), ALICE) == "CN=alice,O=Acme,C=CH"
    assert name_of((country,), (unit, NameAttribute(COMMON_NAME, "b"))) == "CN=b+OU=Data,C=CH"


@pytest.mark.parametrize(
    ("identifier", "keyword"),
    [
        (COMMON_NAME, "CN"),
        (NameOID.LOCALITY_NAME, "L"),
        (NameOID.STATE_OR_PROVINCE_NAME, "ST"),
        (NameOID.ORGANIZATION_NAME, "O"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "OU"),
        (NameOID.STREET_ADDRESS, "STREET"),
        (NameOID.DOMAIN_COMPONENT, "DC"),
        (NameOID.USER_ID, "UID"),
    ],
)
def test_keywords(identifier: ObjectIdentifier, keyword: str) -> None:
    assert name_of((NameAttribute(identifier, "Way 1"),)) == f"{keyword}=Way 1"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('a"b\\c<d>;e,f+g', r"a\"b\\c\<d\>\;e\,f\+g"),
        ("a=b", r"a\=b"),
        ("svc#1", r"svc\#1"),
        ("#1", r"\#1"),
        (" ", r"\ "),
        ("  x y  ", r"\ \ x y\ \ "),
        ("a\\ ", "a\\\\\\ "),
        ("\r a \r", "\\\r\\ a\\ \\\r"),
        ("\ta\n", "\ta\n"),
        ("a\0b", r"a\00b"),
        ("Zürich 😀", "Zürich 😀"),
    ],
)
def test_characters_with_a_meaning_are_escaped(value: str, written: str) -> None:
    assert name_of((NameAttribute(COMMON_NAME, value),)) == f"CN={written}"


@pytest.mark.parametrize(
    ("attribute", "written"),
    [
        (NameAttribute(NameOID.TITLE, "Dr"), "2.5.4.12=#0c024472"),
        (NameAttribute(NameOID.SURNAME, "B"), "2.5.4.4=#0c0142"),
        (NameAttribute(NameOID.POSTAL_CODE, "8000"), "2.5.4.17=#0c0438303030"),
        (NameAttribute(NameOID.ORGANIZATION_IDENTIFIER, "VATDE-1"), "2.5.4.97=#0c0756415444452d31"),
        (NameAttribute(NameOID.DN_QUALIFIER, "q"), "2.5.4.46=#130171"),
        (NameAttribute(NameOID.SERIAL_NUMBER, "123"), "2.5.4.5=#1303313233"),
        (NameAttribute(NameOID.SERIAL_NUMBER, "123", Type.UTF8String), "2.5.4.5=#0c03313233"),
        (NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"), "1.2.840.113549.1.9.1=#1603614062"),
        (NameAttribute(NameOID.EMAIL_ADDRESS, "a@b", Type.UTF8String), "1.2.840.113549.1.9.1=#0c03614062"),
        (NameAttribute(PRIVATE, "v" * 200), f"1.2.840.113556.1.4.999999=#0c81c8{'76' * 200}"),
    ],
)
def test_attributes_without_a_keyword_are_written_in_der(attribute: NameAttribute[str], written: str) -> None:
    assert name_of((attribute,), ALICE) == f"CN=alice,{written}"


@pytest.mark.parametrize(
    ("tag", "value", "written"),
    [
        (Type.IA5String, "a#b", r"a\#b"),
        (Type.T61String, "a=b", r"a\=b"),
        (Type.BMPString, "aüb", "\\00a\\00\ufffd\\00b"),
        (Type.UniversalString, "aüb", "#1c0c00000061000000fc00000062"),
        (Type.NumericString, "123", "#1203313233"),
        (Type.VisibleString, "123", "#1a03313233"),
    ],
)
def test_texts_of_other_types(tag: Type, value: str, written: str) -> None:
    """Java takes some of them for UTF-8, and writes others in DER."""
    assert name_of((NameAttribute(COMMON_NAME, value, tag),)) == f"CN={written}"


@pytest.mark.parametrize("certificate", [b"", b"\x30", b"\x30\x80\0\0", b"\x30\x05\0", b"\x30\x82\x01", b"\x30\0"])
def test_what_is_not_in_der_has_no_name(certificate: bytes) -> None:
    with pytest.raises(ValueError, match="not in DER"):
        distinguished_name(certificate)
