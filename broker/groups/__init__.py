"""Consumer groups: who belongs to a group, who reads which partition, and how far everybody has come.

A group lives on the broker that leads its partition of `__consumer_offsets`, its coordinator. What must outlast the
coordinator is a record in that partition; whoever leads it next replays it. The state machines (`classic_group`,
`consumer_group`) and the store of offsets are pure; `coordinator` carries their effects out.
"""
