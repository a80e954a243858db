"""The table of all attacks."""

from __future__ import annotations

from . import protocol_attacks, resource_attacks
from .attack import Attack

ATTACKS = {
    attack.name: attack
    for attack in (
        Attack("protocol", "drawn and damaged requests to brokers", protocol_attacks.fuzz_brokers, 30.0),
        Attack("protocol-controller", "the same to controllers", protocol_attacks.fuzz_controllers, 15.0),
        Attack("bad-frames", "wrong sizes, half frames, other protocols", protocol_attacks.bad_frames),
        Attack("damaged-batches", "batches of every codec, damaged inside", protocol_attacks.damaged_batches),
        Attack("api-versions-flood", "64,000 pipelined ApiVersions", resource_attacks.api_versions_flood),
        Attack("metadata-names", "Metadata of 400,000 empty names", resource_attacks.metadata_of_many_names),
        Attack("create-topics", "CreateTopics of 3,000 topics", resource_attacks.create_many_topics),
        Attack("fetch-partitions", "Fetch of 100,000 partitions", resource_attacks.fetch_of_many_partitions),
        Attack("produce-partitions", "Produce to 400,000 partitions", resource_attacks.produce_to_many_partitions),
        Attack("tagged-fields", "20,000,000 unknown tagged fields", resource_attacks.many_tagged_fields),
        Attack("half-frames", "200 connections with 2.2 MB of 100 MB each", resource_attacks.half_frames),
        Attack("bombs", "small batches that inflate to 100 MB", resource_attacks.decompression_bombs),
        Attack("internal-topic", "garbage into __consumer_offsets", resource_attacks.garbage_to_internal_topic),
        Attack("vote", "Vote and BeginQuorumEpoch with epoch 2^31-1", resource_attacks.vote_with_largest_epoch),
        Attack("log-flood", "17,000 malformed requests, all different", resource_attacks.log_flood, 20.0),
    )
}
"""Every attack by its name, in the order in which a round runs them."""
