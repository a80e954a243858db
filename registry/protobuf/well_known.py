"""Files that every schema may import without a reference: those of Protobuf itself, of Google's types and Confluent's.

Clients send no references for them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

_PROTOBUF = (
    *("any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask", "struct"),
    *("timestamp", "wrappers"),
)
_TYPES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng"),
    *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
CONFLUENT = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
    "confluent/type/variant.proto": """syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
""",
    "confluent/types/decimal.proto": """syntax = "proto3";
import public "confluent/type/decimal.proto";
""",
}
"""Confluent's files by their names: the options in which its clients keep rules and tags, and its types."""


@cache
def well_known_names() -> frozenset[str]:
    """The names of all these files."""
    return frozenset({one.name for one in _set().file} | CONFLUENT.keys())


@cache
def well_known_descriptors() -> bytes:
    """The descriptors of Google's files, as a serialized `FileDescriptorSet`."""
    return _set().SerializeToString()


@cache
def _set() -> FileDescriptorSet:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet()
    for module in (*(f"protobuf.{one}_pb2" for one in _PROTOBUF), *(f"type.{one}_pb2" for one in _TYPES)):
        import_module(f"google.{module}").DESCRIPTOR.CopyToProto(found.file.add())
    return found
