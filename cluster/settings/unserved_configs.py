"""Configurations of Apache Kafka that this node accepts and does not act on.

A server.properties that was written for Kafka loads. The node says once, when it starts, which of its lines do nothing.
"""

from __future__ import annotations

import re

_UNSERVED = re.compile(
    r"""(
    offsets\..* | transaction(al)?\..* | group\..* | share\..* | streams?\..* | producer\.id\..*
  | producer\.purgatory\..* | fetch\.purgatory\..* | delete\.records\.purgatory\..*
  | sasl\..* | ssl\..* | security\..*
  | principal\..* | authorizer\..* | early\.start\.listeners | log\.cleaner\..*
  | log\.cleanup\..* | log\.retention\..* | log\.segment\.delete\.delay\.ms | log\.roll\.jitter\..* | log\.preallocate
  | log\.flush\.(scheduler|start)\..* | log\.deletion\..* | log\.dir\.failure\..* | log\.initial\..* | log\.local\..*
  | log\.message\.timestamp\.(before|after)\..* | log\.message\.downconversion\.enable
  | compression\..* | num\..*\.threads | num\..*\.per\..* | num\.replica\.fetchers | num\.recovery\..*
  | background\.threads | queued\..* | request\.timeout\.ms | socket\.(send|receive|listen|connection)\..*
  | connections?\.(setup|failed|max\.reauth)\..* | max\.connections.* | max\.connection\..* | max\.request\..*
  | metrics?\..* | client\..* | config\.providers.* | remote\..*
  | metadata\.(log\.(segment|max)|max)\..* | telemetry\..* | unstable\..* | eligible\..* | password\.encoder\..*
  | delegation\.token\..* | kafka\..* | server\.max\..* | listener\.name\..* | zookeeper\..* | internal\..*
  | cordoned\..*
  | controller\.(performance|socket)\..*
  | controller\.quorum\.(append\.linger\.ms|auto\.join\.enable|bootstrap\.servers)
  | broker\.id(\.generation\.enable)? | replica\.selector\.class | replica\.socket\.receive\.buffer\.bytes
  | leader\.imbalance\.per\.broker\.percentage | auto\.include\.jmx\.reporter | unclean\.leader\.election\.interval\.ms
  | reserved\.broker\.max\.id | errors\..*
    )""",
    re.VERBOSE,
)


def is_unserved(name: str) -> bool:
    """Whether Kafka has configurations of this family, and this node none."""
    return _UNSERVED.fullmatch(name) is not None
