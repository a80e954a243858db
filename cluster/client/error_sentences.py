"""What each of Kafka's error codes means and what to do about it, for people.

A broker's own message says more than the meaning here, and replaces it. The way out is always told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ...wire.errors import ErrorCode, error_name

_AGAIN = "try again in a moment"
_DOCTOR = "try again in a moment; if it stays so, raftwerk doctor shows why"
_LOGS = "look at the log of that broker (raftwerk logs)"
_OURS = "this is a bug in the client: please report it with the command line"
_ASK_OPERATOR = "ask the operator of that cluster"
_NO_RIGHT = "an administrator of the cluster may give the right, and sees by raftwerk acls list who has which"
_RESTART_CLIENT = "start the client again"

_SENTENCES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: ("the broker failed unexpectedly", _LOGS),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "there is no record at this offset",
        "raftwerk topics offsets shows where the log begins and ends; consume --since or --last begin in it",
    ),
    ErrorCode.CORRUPT_MESSAGE: (
        "a record batch is damaged, its checksum is wrong",
        "raftwerk log verify finds damaged files, and other replicas have the records",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is no such topic or partition",
        "raftwerk topics list shows the topics, topics create creates one",
    ),
    ErrorCode.INVALID_FETCH_SIZE: ("the size of a fetch is invalid", _OURS),
    ErrorCode.LEADER_NOT_AVAILABLE: ("the partition has no leader now", _DOCTOR),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ("the partition has just moved to another broker", _AGAIN),
    ErrorCode.REQUEST_TIMED_OUT: ("the cluster did not finish the request in time", _DOCTOR),
    ErrorCode.BROKER_NOT_AVAILABLE: ("that broker is not available", "raftwerk brokers list shows the live brokers"),
    ErrorCode.REPLICA_NOT_AVAILABLE: ("that broker has no such replica", "raftwerk topics describe shows the replicas"),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "a record batch is larger than the topic takes",
        "send smaller records, or raise the topic's max.message.bytes with raftwerk configs set",
    ),
    ErrorCode.STALE_CONTROLLER_EPOCH: ("another controller has become active", _AGAIN),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "the metadata that is committed with an offset is too long",
        "shorten it, or raise the brokers' offset.metadata.max.bytes",
    ),
    ErrorCode.NETWORK_EXCEPTION: ("the connection was lost before the response", _DOCTOR),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ("the coordinator is still loading its state", _AGAIN),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ("the group has no coordinator now", _DOCTOR),
    ErrorCode.NOT_COORDINATOR: ("the group has just moved to another coordinator", _AGAIN),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "the topic's name is invalid, or the topic is internal",
        "a name has up to 249 letters, digits, dots, dashes and underscores; dots and underscores count as the same",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "a record batch is larger than a segment",
        "send smaller batches, or raise the topic's segment.bytes",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than min.insync.replicas",
        "raftwerk doctor shows which brokers are missing",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the record was written to fewer replicas than min.insync.replicas",
        "it may be there: raftwerk doctor shows which brokers are missing",
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: ("the value of acks is invalid", "use 0, 1 or all"),
    ErrorCode.ILLEGAL_GENERATION: ("the group has been rebalanced without this member", _RESTART_CLIENT),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members use another protocol or other assignors",
        "give all members the same assignors, or take another group",
    ),
    ErrorCode.INVALID_GROUP_ID: ("the group's id is invalid", "give an id that is not empty"),
    ErrorCode.UNKNOWN_MEMBER_ID: ("the group does not know this member any more", _RESTART_CLIENT),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the session time-out is outside the brokers' limits",
        "take one between group.min.session.timeout.ms and group.max.session.timeout.ms",
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: ("the group is being rebalanced", _AGAIN),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: (
        "the committed offsets are too large for one batch",
        "commit fewer at once",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("you may not do this with the topic", _NO_RIGHT),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("you may not do this with the group", _NO_RIGHT),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ("you may not do this with the cluster", _NO_RIGHT),
    ErrorCode.INVALID_TIMESTAMP: (
        "a record's timestamp is too far from the broker's time",
        "correct the clock, or the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: ("the broker does not know the SASL mechanism", _ASK_OPERATOR),
    ErrorCode.ILLEGAL_SASL_STATE: (
        "the listener wants a client that authenticates itself",
        "say how to log in, with --command-config",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the brokers do not support this request",
        "upgrade them, or finish the upgrade with raftwerk features upgrade",
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: (
        "there is a topic of this name",
        "--if-not-exists accepts that, raftwerk topics delete removes it",
    ),
    ErrorCode.INVALID_PARTITIONS: (
        "the number of partitions is invalid",
        "partitions can be added and not removed: give more than there are; for fewer, create another topic",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "the replication factor is invalid",
        "it is at most the number of brokers, which raftwerk brokers list shows",
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "the assignment of replicas is invalid",
        "name brokers that exist, each once for a partition; raftwerk brokers list shows them",
    ),
    ErrorCode.INVALID_CONFIG: (
        "a setting is unknown, or its value is invalid",
        "raftwerk configs show --all lists the settings of a topic (--topic NAME) or a broker (--broker ID)",
    ),
    ErrorCode.NOT_CONTROLLER: ("no controller is active", "raftwerk doctor shows why"),
    ErrorCode.INVALID_REQUEST: ("the request is invalid", "correct what the message names"),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ("the topic's records are in an old format", "create the topic again"),
    ErrorCode.POLICY_VIOLATION: ("a policy of the cluster forbids this", "ask its operator, who has set the policy"),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "the producer's sequence numbers have a gap: records before were lost",
        "start the producer again, and compare what was acked with what is there",
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: (
        "the broker has this batch already",
        "nothing needs to be done: it was written once",
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        "a newer producer of the same transactional id has begun",
        "stop one of the two",
    ),
    ErrorCode.INVALID_TXN_STATE: ("the transaction's state does not allow this", "abort it and begin another"),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the producer id does not belong to this transactional id",
        "start the producer again",
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "the transaction's time-out is too long",
        "take one up to the brokers' transaction.max.timeout.ms",
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: ("an earlier transaction is not finished yet", _AGAIN),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ("another transaction coordinator has taken over", _AGAIN),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("you may not use this transactional id", _NO_RIGHT),
    ErrorCode.SECURITY_DISABLED: (
        "the cluster has no authorization",
        "so there are no ACLs to show or to set: authorizer.class.name in the nodes' settings turns it on",
    ),
    ErrorCode.OPERATION_NOT_ATTEMPTED: (
        "this was not tried, because another part of the request failed",
        "correct the other part, and repeat the whole request",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "the broker cannot read or write the partition's directory",
        "raftwerk brokers log-dirs shows full and failed disks: free space on a full one, and writing goes on by "
        "itself; repair a failed one, and start the broker again",
    ),
    ErrorCode.LOG_DIR_NOT_FOUND: (
        "the broker has no such log directory",
        "raftwerk brokers log-dirs shows those that it has",
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ("the credentials are wrong", _ASK_OPERATOR),
    ErrorCode.UNKNOWN_PRODUCER_ID: ("the broker has forgotten this producer", "start the producer again"),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "the partition is being moved",
        "raftwerk partitions reassignments shows the moves, partitions cancel ends one",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the cluster has no delegation tokens",
        "delegation.token.secret.key in the settings of all nodes turns them on",
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: ("there is no such delegation token", _ASK_OPERATOR),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "the delegation token is another's",
        "only its owner and its renewers may change it",
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "only a user who has logged in, and not with a token, can manage delegation tokens",
        "use a --command-config with a user's name and password, or a client certificate",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "you may not make tokens for that owner",
        "somebody has to allow you CreateTokens on that user",
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: ("the delegation token has expired", "ask for another"),
    ErrorCode.INVALID_PRINCIPAL_TYPE: ("the type of the principal is unknown", _ASK_OPERATOR),
    ErrorCode.NON_EMPTY_GROUP: (
        "the group has members",
        "stop its consumers first (raftwerk groups describe); one that died leaves after its session time-out",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: ("there is no such group", "raftwerk groups list shows the groups"),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ("the broker has forgotten the fetch session", _AGAIN),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: ("the fetch session is out of step", _AGAIN),
    ErrorCode.LISTENER_NOT_FOUND: (
        "the leader has no listener of the name that was asked",
        "give all brokers the same listener names",
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: (
        "the brokers do not delete topics",
        "set delete.topic.enable=true in their server.properties",
    ),
    ErrorCode.FENCED_LEADER_EPOCH: ("the partition has a newer leader", _AGAIN),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ("the broker does not know the newest leader yet", _AGAIN),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "the compression is not supported",
        "use gzip, snappy, lz4, zstd or none",
    ),
    ErrorCode.STALE_BROKER_EPOCH: ("the broker has registered again since", _AGAIN),
    ErrorCode.OFFSET_NOT_AVAILABLE: ("a new leader does not know its end offset yet", _AGAIN),
    ErrorCode.MEMBER_ID_REQUIRED: ("the group gives the member an id first", "repeat with the id that it gave"),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: (
        "the preferred leader is down or not in sync",
        "raftwerk topics describe shows the in-sync replicas; start that broker",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ("the group is full", "raise the brokers' group.max.size, or stop a member"),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another member has the same group.instance.id",
        "give each member its own, and stop one of the two",
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: (
        "no replica that may lead is alive",
        "start a broker that has a replica first; raftwerk topics describe shows the replicas",
    ),
    ErrorCode.ELECTION_NOT_NEEDED: ("the right replica leads already", "nothing needs to be done"),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: (
        "the partition is not being moved",
        "raftwerk partitions reassignments shows the moves",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "a member of the group reads this topic",
        "stop its consumers first; raftwerk groups describe shows them",
    ),
    ErrorCode.INVALID_RECORD: (
        "a record is refused",
        "compacted topics take no records without a key; the message names others",
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ("a transaction holds the group's offsets", _AGAIN),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ("a quota is used up", "try again later, or ask for a higher quota"),
    ErrorCode.PRODUCER_FENCED: ("a newer producer of the same transactional id has begun", "stop one of the two"),
    ErrorCode.RESOURCE_NOT_FOUND: ("there is no such resource", "check the name"),
    ErrorCode.DUPLICATE_RESOURCE: ("the request names something twice", "name it once"),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: ("the credential is refused", _ASK_OPERATOR),
    ErrorCode.INCONSISTENT_VOTER_SET: (
        "the controllers do not agree on the voters",
        "give all the same controller.quorum.voters",
    ),
    ErrorCode.INVALID_UPDATE_VERSION: (
        "the feature or its level is not possible",
        "raftwerk features list shows the supported levels",
    ),
    ErrorCode.FEATURE_UPDATE_FAILED: (
        "the level of the feature was not changed",
        "raftwerk features list shows the levels that all nodes support",
    ),
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: ("a forwarded request has a malformed principal", _LOGS),
    ErrorCode.SNAPSHOT_NOT_FOUND: ("that snapshot of the metadata is gone", _AGAIN),
    ErrorCode.POSITION_OUT_OF_RANGE: ("the position is outside the snapshot", _AGAIN),
    ErrorCode.UNKNOWN_TOPIC_ID: (
        "the topic was deleted, and perhaps created again",
        "raftwerk topics list shows the topics",
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "another live broker has this id",
        "give each broker its own node.id, and stop one of the two",
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (
        "no broker of this id is registered",
        "raftwerk brokers list shows the live brokers",
    ),
    ErrorCode.INCONSISTENT_TOPIC_ID: (
        "the log on the disk is another topic's of the same name",
        "raftwerk topics list shows the topics",
    ),
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "the node belongs to another cluster",
        "correct its addresses, or format its directories for this cluster",
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "there is no such transactional id",
        "raftwerk transactions list shows them",
    ),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: ("a fetch session mixes names and ids of topics", _AGAIN),
    ErrorCode.INELIGIBLE_REPLICA: ("the replica may not be in the ISR now", _AGAIN),
    ErrorCode.NEW_LEADER_ELECTED: ("the change of the ISR has elected another leader", _AGAIN),
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: (
        "the records are in tiered storage",
        "begin at a later offset: raftwerk topics offsets shows them",
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: ("the group goes on without this member", _RESTART_CLIENT),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another member has the same group.instance.id",
        "stop it first, or give each member its own",
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ("the group's coordinator has no such assignor", "use uniform or range"),
    ErrorCode.STALE_MEMBER_EPOCH: ("the member must first hear of its new assignment", _AGAIN),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: (
        "this is a controller, and a broker was expected, or the reverse",
        "-b names brokers, --bootstrap-controller controllers",
    ),
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: (
        "this listener does not describe such nodes",
        "-b names brokers, --bootstrap-controller controllers",
    ),
    ErrorCode.UNKNOWN_CONTROLLER_ID: ("there is no such controller", "raftwerk quorum lists the controllers"),
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: ("the broker has other subscriptions to metrics now", _AGAIN),
    ErrorCode.TELEMETRY_TOO_LARGE: (
        "the client's metrics are too large",
        "subscribe to fewer, or raise the brokers' telemetry.max.bytes",
    ),
    ErrorCode.INVALID_REGISTRATION: ("the registration of the node is invalid", _LOGS),
    ErrorCode.TRANSACTION_ABORTABLE: ("the transaction cannot go on", "abort it and begin another"),
    ErrorCode.INVALID_RECORD_STATE: ("the record's state does not allow this acknowledgement", "receive it again"),
    ErrorCode.SHARE_SESSION_NOT_FOUND: ("the broker has forgotten the share session", _AGAIN),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: ("the share session is out of step", _AGAIN),
    ErrorCode.FENCED_STATE_EPOCH: ("another share coordinator has taken over", _AGAIN),
    ErrorCode.INVALID_VOTER_KEY: (
        "the voter's id and directory id do not belong together",
        "raftwerk quorum shows the directory ids",
    ),
    ErrorCode.DUPLICATE_VOTER: (
        "the controller is a voter already",
        "raftwerk quorum lists the voters; if this one has another directory id there, that directory is gone: "
        "raftwerk quorum remove-controller with its node id takes it out, and then this one can be added",
    ),
    ErrorCode.VOTER_NOT_FOUND: ("there is no such voter", "raftwerk quorum lists the voters"),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (
        "the regular expression of the subscription is invalid",
        "write it in the syntax of RE2",
    ),
    ErrorCode.REBOOTSTRAP_REQUIRED: ("the brokers that the client knows are gone", _RESTART_CLIENT),
    ErrorCode.STREAMS_INVALID_TOPOLOGY: ("the topology of the streams application is invalid", "correct its topics"),
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: ("the epoch of the topology is invalid", "restart the application"),
    ErrorCode.STREAMS_TOPOLOGY_FENCED: ("the application has a newer topology", "restart the instances of the old one"),
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: (
        "the broker has as many share sessions as it takes",
        "stop consumers, or raise the brokers' group.share.max.share.sessions",
    ),
}

_WAYS_OUT_BY_MESSAGE = {
    "Excessively large number of partitions per request.": (
        "one request makes 10,000 partitions at most: create the topic with fewer, and add more in steps with raftwerk "
        "topics alter -p"
    ),
}
"""The ways out where a message tells a case of its own."""
_ONLY_THE_CODE = re.compile(r"(topic|group|cluster|transactional id) authorization failed\.?", re.IGNORECASE)

SENTENCES: Mapping[int, tuple[str, str]] = MappingProxyType({int(code): row for code, row in _SENTENCES.items()})
"""The meaning and the way out of every error code but NONE."""


def meaning_of(code: int) -> str:
    """What an error code means, with its name and without a way out."""
    return f"{SENTENCES[code][0]} ({error_name(code)})" if code in SENTENCES else f"error {code}"


def error_sentence(code: int, message: str | None = None, way_out: str | None = None) -> str:
    """The broker's message or the code's meaning, the code's name, and the way out: the given one, or the code's.

    A message such as "Topic authorization failed." says no more than the code, and gives way to its meaning.
    """
    if code not in SENTENCES:
        return (
            f"{message or 'the broker refuses'} (error {code}); look up the code in the protocol guide of Apache Kafka"
        )
    meaning, usual_way_out = SENTENCES[code]
    if message is not None and _ONLY_THE_CODE.fullmatch(message):
        message = None
    way_out = way_out or _WAYS_OUT_BY_MESSAGE.get(message or "", usual_way_out)
    return f"{(message or meaning).rstrip('.')} ({error_name(code)}); {way_out}"
