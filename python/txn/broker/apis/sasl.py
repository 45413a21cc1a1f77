"""Users of SCRAM, and the requests of SASL on listeners without authentication.

`txn.server.security.logins` answers SaslHandshake and SaslAuthenticate on a SASL listener. On other
listeners they get ILLEGAL_SASL_STATE, as from Kafka.

Sources: KIP-554; Apache Kafka 4.2, `ScramControlManager` and `ScramPublisher`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import (
    ALTER_CLUSTER,
    CLUSTER_FAILED,
    CLUSTER_REFUSED,
    DESCRIBE_CLUSTER,
    for_everybody,
)
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.node import Node
from txn.errors import StorageError
from txn.metadata.image import Image
from txn.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from txn.security.login import ILLEGAL_TOKEN
from txn.security.mechanisms import NAME_MAX
from txn.security.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, credential_of
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.sasl import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from txn.wire.error_codes import ErrorCode

SALTED_MAX: Final = 1024
"""The most bytes of a salt and of a salted password: more cannot be of use."""


async def sasl_handshake(
    node: Node, request: SaslHandshakeRequest, context: Context
) -> SaslHandshakeResponse:
    """Refuse a handshake: the listener authenticates nobody."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])


async def sasl_authenticate(
    node: Node, request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse:
    """Refuse a token: the listener authenticates nobody."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, ILLEGAL_TOKEN, b"")


async def describe_user_scram_credentials(
    node: Node, request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """List the mechanisms and iterations of users, and never a secret."""
    known: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in sorted(node.image.scram_credentials.items()):
        known.setdefault(name, []).append(CredentialInfo(mechanism, credential.iterations))
    asked = Counter(user.name for user in request.users or ())
    results = [_described(name, known.get(name, []), times) for name, times in asked.items()] or [
        DescribedUser(name, ErrorCode.NONE, None, infos) for name, infos in known.items()
    ]
    return DescribeUserScramCredentialsResponse(ErrorCode.NONE, None, results)


def _described(name: str, infos: list[CredentialInfo], times: int) -> DescribedUser:
    if times > 1:
        return DescribedUser(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{name}",
        )
    if not infos:
        return DescribedUser(
            name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribedUser(name, ErrorCode.NONE, None, infos)


async def alter_user_scram_credentials(
    node: Node, request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    """Change credentials, each user's on its own; they count from the next log-in on."""
    deletions, upsertions, faults = _checked(node.controller.image, request)
    changes: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] = [
        *(RemoveUserScramCredentialRecord(name, one.mechanism) for name, one in deletions.items()),
        *(credential_record(one) for one in upsertions.values()),
    ]
    outcome = AlteredUser("", ErrorCode.NONE, None)
    if changes:
        try:
            await node.controller.alter_scram_credentials(changes)
        except StorageError as error:
            outcome = AlteredUser("", ErrorCode(error.code), error.message)
        else:
            for record in changes:
                is_removal = isinstance(record, RemoveUserScramCredentialRecord)
                event = "user.removed" if is_removal else "user.added"
                mechanism = HASHES[record.mechanism].mechanism
                audit.acted(context, event, "USER", record.name, mechanism=mechanism)
    return AlterUserScramCredentialsResponse(
        [
            *(outcome._replace(user=name) for name in (*deletions, *upsertions)),
            *(AlteredUser(name, *fault) for name, fault in faults.items()),
        ]
    )


Fault = tuple[ErrorCode, str]


def _checked(
    image: Image, request: AlterUserScramCredentialsRequest
) -> tuple[
    dict[str, ScramCredentialDeletion], dict[str, ScramCredentialUpsertion], dict[str, Fault]
]:
    """The changes to make and the faults of the others, by user; the first fault of each counts."""
    deletions: dict[str, ScramCredentialDeletion] = {}
    upsertions: dict[str, ScramCredentialUpsertion] = {}
    faults: dict[str, Fault] = {}
    twice = (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    changes: Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]
    changes = (*request.deletions, *request.upsertions)
    for change in changes:
        name = change.name
        if name in faults:
            continue
        if deletions.pop(name, None) is not None or upsertions.pop(name, None) is not None:
            faults[name] = twice
            continue
        if isinstance(change, ScramCredentialDeletion):
            fault = _deletion_fault(image, name, change.mechanism)
            deletions[name] = change
        else:
            fault = _upsertion_fault(change)
            upsertions[name] = change
        if fault is not None:
            faults[name] = fault
            deletions.pop(name, None)
            upsertions.pop(name, None)
    return deletions, upsertions, faults


def credential_record(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """The record of a credential; the salted password, which logs in, is not kept."""
    made = credential_of(
        HASHES[upsertion.mechanism],
        upsertion.salted_password,
        upsertion.salt,
        upsertion.iterations,
    )
    return UserScramCredentialRecord(upsertion.name, upsertion.mechanism, *made)


def _user_fault(name: str, mechanism: int) -> Fault | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if len(name) > NAME_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username is longer than {NAME_MAX} characters"
    if mechanism not in HASHES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _deletion_fault(image: Image, name: str, mechanism: int) -> Fault | None:
    fault = _user_fault(name, mechanism)
    if fault is None and (name, mechanism) not in image.scram_credentials:
        return (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return fault


def _upsertion_fault(upsertion: ScramCredentialUpsertion) -> Fault | None:
    fault = _user_fault(upsertion.name, upsertion.mechanism)
    if fault is not None:
        return fault
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if upsertion.iterations < ITERATIONS_MIN:
        return unacceptable, "Too few iterations"
    if upsertion.iterations > ITERATIONS_MAX:
        return unacceptable, "Too many iterations"
    if not upsertion.salt or not upsertion.salted_password:
        return unacceptable, "Salt and salted password must not be empty"
    if max(len(upsertion.salt), len(upsertion.salted_password)) > SALTED_MAX:
        return unacceptable, f"Salt and salted password have {SALTED_MAX} bytes at most"
    return None


# ---------------------------------------------------------------- access


def _not_described(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """A result without a name for each user that was named, as in Kafka."""
    refused = [DescribedUser("", CLUSTER_FAILED, None)] * len(request.users or ())
    return DescribeUserScramCredentialsResponse(CLUSTER_FAILED, None, refused)


def _not_altered(
    request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    users = {one.name: None for one in request.deletions}
    users |= {one.name: None for one in request.upsertions}
    return AlterUserScramCredentialsResponse(
        [AlteredUser(user, *CLUSTER_REFUSED) for user in users]
    )


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.SASL_HANDSHAKE,
        (0, 1),
        SaslHandshakeRequest,
        SaslHandshakeResponse,
        for_everybody,
        sasl_handshake,
    ),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        (0, 2),
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        for_everybody,
        sasl_authenticate,
    ),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (0, 0),
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        DESCRIBE_CLUSTER.or_by(_not_described),
        describe_user_scram_credentials,
    ),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (0, 0),
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ALTER_CLUSTER.or_by(_not_altered),
        alter_user_scram_credentials,
    ),
)
