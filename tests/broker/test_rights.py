"""The rights in the table of APIs, beside the rights that changed an answer of Apache Kafka 4.2."""

from __future__ import annotations

import pytest
from support.security.admin_authorization_calls import ADMIN_CALLS
from support.security.authorization_calls import BROKER_CALLS
from support.security.authorization_users import NOBODY, SINGLE_RIGHTS, USERS, Right, right_name
from support.security.kafka_authorization import CALLS, kafka_answers

from raftwerk.broker.api import ApiSpec
from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.wire.api_keys import ApiKey

FOR_EVERYBODY = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.RENEW_DELEGATION_TOKEN,
                 ApiKey.EXPIRE_DELEGATION_TOKEN}  # fmt: skip
"""The last two are for the owner and the renewers of a token, whatever rights they have."""
NOT_CALLED = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.UPDATE_FEATURES, ApiKey.ADD_RAFT_VOTER,
              ApiKey.REMOVE_RAFT_VOTER}  # fmt: skip
"""APIs of brokers that no call of the transcript uses: logins, and what would change the node that is asked."""
IMPLIED = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
SERVED = [pytest.param(spec, id=spec.key.name) for spec in API_TABLE if spec.broker and spec.key not in NOT_CALLED]


def _implied(rights: set[Right]) -> set[Right]:
    more = {(other, kind) for operation, kind in rights for other in IMPLIED.get(operation, ())}
    return (rights | more) & set(SINGLE_RIGHTS)


def test_each_call_of_the_transcript_is_made_once() -> None:
    assert list(kafka_answers()) == [call.name for call in CALLS]
    assert len({call.name for call in (*BROKER_CALLS, *ADMIN_CALLS)}) == len(CALLS)


def test_every_api_says_what_it_checks() -> None:
    assert {spec.key for spec in API_TABLE if not spec.checks} == FOR_EVERYBODY
    assert all(len(set(spec.checks)) == len(spec.checks) for spec in API_TABLE)


def test_apis_of_controllers_alone_are_for_nodes() -> None:
    for spec in API_TABLE:
        if spec.broker is None:
            assert spec.checks == ((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),), spec.key


@pytest.mark.parametrize("spec", SERVED)
def test_the_rights_in_the_table_are_those_that_change_answers_of_kafka(spec: ApiSpec) -> None:
    answers = kafka_answers()
    of_api = [answers[call.name] for call in CALLS if call.key is spec.key]
    assert of_api, "no call of the transcript uses this API"
    checked = {(one.operation, one.resource_type) for one in spec.checks}
    alone = {right for right in SINGLE_RIGHTS for answer in of_api if answer[right_name(right)] != answer[NOBODY]}
    assert alone <= _implied(checked)
    # A right that changes nothing alone does so for a user who has another one of this API, or is not in the calls.
    together = {
        right
        for user, rights in USERS.items()
        if len(rights) > 1
        for answer in of_api
        if answer[user] not in {answer[NOBODY], *(answer[right_name(right)] for right in rights)}
        for right in rights
    }
    unseen = checked - alone - together
    assert all(_implied({right}) & (alone | together) for right in unseen if right not in _UNSEEN.get(spec.key, ()))


_UNSEEN: dict[ApiKey, tuple[Right, ...]] = {
    # Version 6 is not stable in Kafka 4.2.
    ApiKey.INIT_PRODUCER_ID: ((AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID),),
    ApiKey.CREATE_TOPICS: ((AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),),
    ApiKey.DELETE_TOPICS: ((AclOperation.DESCRIBE, ResourceType.TOPIC),),
}
"""Rights that Kafka checks in what no call asks for."""
