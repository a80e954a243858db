"""Formatting of directories: the first voters, the first feature levels, and refusals."""

from __future__ import annotations

import errno
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from raftwerk.cluster.node import formatting
from raftwerk.cluster.node.bootstrap_features import choose_levels, read_levels
from raftwerk.cluster.node.bootstrap_users import choose_users, read_users
from raftwerk.cluster.node.formatting import (
    FirstVoters,
    FormatError,
    cluster_id_of,
    format_node,
    formatted_cluster_id,
    formatted_directory_id,
    parse_controllers,
)
from raftwerk.cluster.settings.format_advice import format_advice, other_nodes_advice
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.cluster.settings.settings_per_package import log_manager_config
from raftwerk.controller.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_records import FeatureLevelRecord
from raftwerk.log.errors import DirFailedError, LogDirError, UnformattedDirError
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.meta_properties import format_dirs, why_unusable
from raftwerk.log.state.checkpoints import encode_uuid
from raftwerk.raft.driver.raft_driver import metadata_log_dir
from raftwerk.raft.snapshots.snapshot_store import SnapshotStore
from raftwerk.raft.types import LOG_BEGIN, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, VoterListener, VoterSet
from raftwerk.runtime.clock import SystemClock
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORIES = {node_id: encode_uuid(UUID(int=node_id << 64)) for node_id in (1, 2)}
BOTH = f"1@a:9093:{DIRECTORIES[1]},2@[::1]:9093:{DIRECTORIES[2]}"


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(disk=RealDisk(), clock=SystemClock(), rng=random.Random(1))


def config(tmp_path: Path, **changes: str) -> NodeConfig:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "a:9093",
        "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{tmp_path}/one,{tmp_path}/two",
    }
    properties |= {name.replace("_", "."): value for name, value in changes.items()}
    return NodeConfig.from_properties({name: value for name, value in properties.items() if value})


STATIC = {"controller_quorum_bootstrap_servers": "", "controller_quorum_voters": "1@a:9093"}
BROKER = {"process_roles": "broker", "listeners": "PLAINTEXT://a:9092"}


def first_voters(settings: NodeConfig, runtime: Runtime) -> list[object]:
    store = SnapshotStore(runtime.disk, metadata_log_dir(settings.metadata_log_dir))
    return list(store.controls(LOG_BEGIN)) if LOG_BEGIN in store.ids else []


def test_standalone(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=FirstVoters(standalone=True))
    directory_id = formatted_directory_id(settings, runtime)
    version, voters = first_voters(settings, runtime)
    assert version == KRaftVersion(1)
    assert isinstance(voters, VoterSet) and directory_id is not None
    assert voters.keys == [ReplicaKey(1, directory_id)]
    assert voters.voters[0].listeners == (VoterListener("CONTROLLER", "a", 9093),)


def test_initial_controllers_give_the_directory_its_id(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=FirstVoters(initial=BOTH))
    assert formatted_directory_id(settings, runtime) == UUID(int=1 << 64)
    voters = first_voters(settings, runtime)[1]
    assert isinstance(voters, VoterSet) and voters.ids == [1, 2]
    assert voters.voters[1].listeners == (VoterListener("CONTROLLER", "::1", 9093),)


def test_a_controller_that_joins_later_has_no_voters(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    assert len(format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=FirstVoters(none=True)))
    assert not runtime.disk.exists(metadata_log_dir(settings.metadata_log_dir))
    again = format_node(settings, runtime, CLUSTER_ID, ignore_formatted=True)
    assert again == [], "what is formatted needs no choice any more"


@pytest.mark.parametrize("changes", [STATIC, BROKER], ids=["static", "broker"])
def test_static_voters_and_brokers_need_no_choice(tmp_path: Path, runtime: Runtime, changes: dict[str, str]) -> None:
    assert len(format_node(config(tmp_path, **changes), runtime, CLUSTER_ID, ignore_formatted=False)) == 2


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({}, FirstVoters(), "say who votes first, with raftwerk format and one of --standalone"),
        ({}, FirstVoters(standalone=True, none=True), "Only one of"),
        ({}, FirstVoters(initial=f"2@b:9093:{DIRECTORIES[2]}"), "does not name this node: add 1@host:port"),
        ({}, FirstVoters(initial="1@a:9093"), "is not id@host:port:directory-id"),
        (STATIC, FirstVoters(standalone=True), "the voters are static"),
        (BROKER, FirstVoters(standalone=True), "This node is not a controller"),
    ],
)
def test_refusals(tmp_path: Path, runtime: Runtime, changes: dict[str, str], asked: FirstVoters, reason: str) -> None:
    settings = config(tmp_path, **changes)
    with pytest.raises(FormatError, match=reason):
        format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=asked)
    assert formatted_directory_id(settings, runtime) is None, "nothing was written"


@pytest.mark.parametrize(
    "text",
    [
        f"1@a:0:{DIRECTORIES[1]}",
        f"1@a:70000:{DIRECTORIES[1]}",
        f"x@a:1:{DIRECTORIES[1]}",
        f"1@a:1:{DIRECTORIES[1]},1@b:1:{DIRECTORIES[2]}",
        f"1@a:1:{DIRECTORIES[1]},2@b:1:{DIRECTORIES[1]}",
        "",
    ],
)
def test_lists_of_controllers_are_checked(text: str) -> None:
    with pytest.raises(FormatError):
        parse_controllers(text, ["CONTROLLER"])


def test_the_first_levels_of_features(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    levels = choose_levels("4.0", ["raftwerk.record.version=0", "group.version=1"])
    standalone = FirstVoters(standalone=True)
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=standalone, levels=levels)
    chosen = read_levels(runtime.disk, settings.metadata_log_dir)
    assert chosen == {
        "metadata.version": 25,
        "eligible.leader.replicas.version": 0,
        "transaction.version": 2,
        "raftwerk.record.version": 0,
    }
    assert bootstrap_records(MetadataImage("c"), SUPPORTED_FEATURES, chosen) == [
        FeatureLevelRecord("metadata.version", 25),
        FeatureLevelRecord("transaction.version", 2),
    ]
    records = bootstrap_records(MetadataImage("c"), SUPPORTED_FEATURES, {})
    names = [record.name if isinstance(record, FeatureLevelRecord) else record for record in records]
    assert names == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "raftwerk.record.version",
        "transaction.version",
    ]
    assert read_levels(runtime.disk, f"{tmp_path}/two") == {}
    assert choose_levels("4.2-IV1", [])["metadata.version"] == 29
    assert choose_levels("4.0-IV1", [])["transaction.version"] == 1


@pytest.mark.parametrize(
    ("release", "features", "reason"),
    [
        ("3.0", [], "release 3.0 is unknown: 4.0, 4.1, 4.2, 4.0-IV1"),
        (None, ["metadata.version"], "is not NAME=LEVEL"),
        (None, ["kraft.version=1"], "leave it out"),
        (None, ["share.version=1"], "no such feature"),
        (None, ["transaction.version=3"], "levels 0 to 2"),
        (None, ["metadata.version=30"], "levels 7 to 29"),
        ("4.2", ["metadata.version=29"], "leave one of them out"),
    ],
)
def test_impossible_levels_are_refused(release: str | None, features: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        choose_levels(release, features)


@pytest.mark.parametrize("ignore_formatted", [False, True])
@pytest.mark.parametrize("name", ["flights-0", "__cluster_metadata-0"])
def test_data_without_meta_properties_is_never_formatted(
    tmp_path: Path, runtime: Runtime, name: str, ignore_formatted: bool
) -> None:
    settings = config(tmp_path, **STATIC)
    for path in settings.log_dirs:
        (Path(path) / name).mkdir(parents=True)
        (Path(path) / name / "00000000000000000000.log").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FormatError, match=rf"one holds data \({name}\) and no meta.properties.*empty the directory"):
        format_node(settings, runtime, CLUSTER_ID, ignore_formatted=ignore_formatted)
    with pytest.raises(LogDirError, match=rf"one holds data \({name}\).*restore that file from a backup") as told:
        cluster_id_of(settings, runtime)
    assert "raftwerk format" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_exchanged_disk_is_formatted_for_the_cluster_of_the_others(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path, **STATIC)
    assert formatted_cluster_id(settings, runtime) is None
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False)
    exchanged = Path(settings.all_dirs[-1])
    (exchanged / "meta.properties").unlink()
    assert formatted_cluster_id(settings, runtime) == CLUSTER_ID
    with pytest.raises(FormatError, match="belongs to cluster"):
        format_node(settings, runtime, encode_uuid(UUID(int=7 << 64)), ignore_formatted=True)
    assert list(exchanged.iterdir()) == [], "nothing is written for another cluster"
    assert format_node(settings, runtime, CLUSTER_ID, ignore_formatted=True) == [str(exchanged)]


def test_directories_of_two_clusters_are_both_named(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path, **STATIC)
    other = encode_uuid(UUID(int=7 << 64))
    for path, cluster_id in zip(settings.all_dirs, (CLUSTER_ID, other), strict=True):
        format_dirs(runtime, [path], cluster_id, 1)
    for read in (cluster_id_of, formatted_cluster_id):
        with pytest.raises((LogDirError, FormatError)) as refused:
            read(settings, runtime)
        assert str(refused.value).startswith(
            f"Log directory {settings.all_dirs[0]} belongs to cluster {CLUSTER_ID}, log directory "
            f"{settings.all_dirs[1]} to cluster {other}: take the one that is not this node's out of log.dirs"
        )


def test_an_interrupted_formatting_can_be_repeated(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    standalone = FirstVoters(standalone=True)
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=standalone)
    for path in settings.log_dirs:
        (Path(path) / "meta.properties").unlink()
    assert len(format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=standalone)) == 2


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_a_log_directory_that_is_a_file_is_told_as_one(tmp_path: Path, runtime: Runtime, below: str) -> None:
    (tmp_path / "file").touch()
    settings = config(tmp_path, log_dirs=f"{tmp_path}/file{below}", **STATIC)
    said = f"{tmp_path}/file is a file, not a directory; name another directory in log.dirs, or remove that file."
    with pytest.raises(FormatError) as refused:
        format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False)
    assert str(refused.value) == f"Log directory {tmp_path}/file{below} cannot be used: {said}"
    assert format_node(settings, runtime, CLUSTER_ID, ignore_formatted=True) == []
    with pytest.raises(DirFailedError) as unusable:
        cluster_id_of(settings, runtime)
    assert str(unusable.value) == str(refused.value)


def test_the_refusals_of_the_operating_system_have_a_way_out(tmp_path: Path, runtime: Runtime) -> None:
    def told(number: int) -> str:
        return why_unusable(runtime.disk, str(tmp_path), OSError(number, os.strerror(number)))

    assert told(errno.EACCES).endswith(
        "permission denied; let the user of this process read and write it (chown), or name another directory in "
        "log.dirs."
    )
    assert "read-only file system; mount it for writing" in told(errno.EROFS)
    assert "input/output error; repair its disk" in told(errno.EIO)
    with pytest.raises(FormatError, match="/proc/nope cannot be used: no such file or directory; its parent takes no"):
        format_node(config(tmp_path, log_dirs="/proc/nope", **STATIC), runtime, CLUSTER_ID, ignore_formatted=False)


def test_the_command_that_formats_is_the_one_for_this_node(tmp_path: Path, runtime: Runtime) -> None:
    static, dynamic = config(tmp_path, **STATIC), config(tmp_path)
    assert format_advice(static).startswith("start it with raftwerk node --format CLUSTER_ID, with the cluster's id")
    named = format_advice(replace(static, file="conf/one.properties"))
    assert named.startswith("run raftwerk format -t CLUSTER_ID -c conf/one.properties, with")
    assert " -c one.properties --standalone, with" in format_advice(replace(dynamic, file="one.properties"))
    here = config(tmp_path, listeners="PLAINTEXT://:9092,CONTROLLER://:9093")
    for own in ("localhost:9093", "127.0.0.1:9093"):
        alone = NodeConfig.from_properties({**here.properties, "controller.quorum.bootstrap.servers": own})
        assert " --standalone, with" in format_advice(replace(alone, file="one.properties"))
    with pytest.raises(UnformattedDirError) as unformatted:
        cluster_id_of(replace(static, file="conf/one.properties"), runtime)
    assert str(unformatted.value) == f"Log directory {tmp_path}/one is not formatted: {named}."


def test_what_is_formatted_already_is_kept_unless_its_data_may_go(tmp_path: Path, runtime: Runtime) -> None:
    one = config(tmp_path, log_dirs=f"{tmp_path}/one", **STATIC)
    format_node(one, runtime, CLUSTER_ID, ignore_formatted=False)
    with pytest.raises(FormatError) as refused:
        format_node(config(tmp_path, **STATIC), runtime, CLUSTER_ID, ignore_formatted=False)
    assert str(refused.value) == (
        f"Log directory {tmp_path}/one is formatted already: use --ignore-formatted, which leaves it as it is and "
        "formats the others. To begin anew, empty it, which deletes its data."
    )
    with pytest.raises(FormatError, match="or empty that one, which deletes its data, and format it again"):
        format_node(one, runtime, encode_uuid(UUID(int=7 << 64)), ignore_formatted=False)


def test_a_second_directory_is_told_with_the_whole_command(tmp_path: Path, runtime: Runtime) -> None:
    one = config(tmp_path, **STATIC)
    format_node(one, runtime, CLUSTER_ID, ignore_formatted=False)
    both = replace(config(tmp_path, log_dirs=f"{one.all_dirs[0]},{tmp_path}/second", **STATIC), file="a b.properties")
    for file, told in (
        ("a b.properties", f"run `raftwerk format -t {CLUSTER_ID} -c 'a b.properties' --ignore-formatted` first"),
        (None, f"start the node with `raftwerk node --format {CLUSTER_ID}`"),
    ):
        settings = log_manager_config(replace(both, file=file), cluster_id_of(both, runtime), lambda *_: None)
        with pytest.raises(UnformattedDirError, match=f"{tmp_path}/second does not exist: {re.escape(told)}, or mount"):
            LogManager(runtime, settings).acquire()


def test_a_new_directory_does_not_take_the_place_of_the_metadata_log(tmp_path: Path, runtime: Runtime) -> None:
    old = config(tmp_path, log_dirs=f"{tmp_path}/old")
    format_node(old, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=FirstVoters(standalone=True))
    wider = replace(config(tmp_path, log_dirs=f"{tmp_path}/new,{tmp_path}/old"), file="one.properties")
    told = (
        f"Log directory {tmp_path}/new would hold the metadata log of this controller, which is in {tmp_path}/old: "
        f"set metadata.log.dir={tmp_path}/old, or name that directory first in log.dirs."
    )
    for attempt in (
        lambda: cluster_id_of(wider, runtime),
        lambda: format_node(wider, runtime, CLUSTER_ID, ignore_formatted=True, first_voters=FirstVoters(none=True)),
    ):
        with pytest.raises((LogDirError, FormatError)) as refused:
            attempt()
        assert str(refused.value) == told
    assert not os.path.exists(f"{tmp_path}/new")
    runtime.disk.remove_tree(metadata_log_dir(f"{tmp_path}/old"))
    settings = log_manager_config(wider, cluster_id_of(wider, runtime), lambda *_: None)
    with pytest.raises(UnformattedDirError, match="--ignore-formatted --no-initial-controllers` first, and the meta"):
        LogManager(runtime, settings).acquire()
    fresh = format_node(wider, runtime, CLUSTER_ID, ignore_formatted=True, first_voters=FirstVoters(none=True))
    assert fresh == [f"{tmp_path}/new"]


@pytest.mark.parametrize(
    ("voters", "options"),
    [
        (FirstVoters(), ""),
        (FirstVoters(standalone=True), " --no-initial-controllers"),
        (FirstVoters(none=True), " --no-initial-controllers"),
        (FirstVoters(initial="LIST"), " --initial-controllers LIST (without that option for a broker)"),
    ],
)
def test_a_new_id_is_told_with_the_command_for_the_other_nodes(voters: FirstVoters, options: str) -> None:
    told = other_nodes_advice(CLUSTER_ID, voters.options_of_others)
    assert told.endswith(f": raftwerk format -t {CLUSTER_ID} -c SERVER.PROPERTIES{options}")


@pytest.mark.parametrize(
    ("servers", "others"),
    [("a:9093,b:9093,[::2]:9093", "b:9093, [::2]:9093"), ("b:9093", "b:9093"), ("localhost:9094", "localhost:9094")],
)
def test_a_controller_beside_others_is_not_told_to_begin_a_second_quorum(
    tmp_path: Path, servers: str, others: str
) -> None:
    settings = config(tmp_path, controller_quorum_bootstrap_servers=servers)
    told = format_advice(replace(settings, file="one.properties"))
    assert told.startswith(
        "run raftwerk format -t CLUSTER_ID -c one.properties --no-initial-controllers, with the cluster"
    )
    assert f"names other controllers ({others}): if they run, this one joins their quorum" in told
    assert "--standalone would begin a second one" in told and "the same --initial-controllers" in told


def test_a_refused_format_leaves_no_levels_and_no_users(tmp_path: Path, runtime: Runtime) -> None:
    settings = config(tmp_path)
    users = choose_users(["SCRAM-SHA-512=[name=admin,password=secret]"], bytes)
    with pytest.raises(FormatError, match="does not name this node"):
        format_node(
            settings,
            runtime,
            CLUSTER_ID,
            ignore_formatted=False,
            first_voters=FirstVoters(initial=f"2@b:9093:{DIRECTORIES[2]}"),
            levels=choose_levels("4.0", ()),
            users=users,
        )
    assert read_levels(runtime.disk, settings.metadata_log_dir) == {}
    assert read_users(runtime.disk, settings.metadata_log_dir) == ()


def test_a_format_uses_nothing_of_an_interrupted_one(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off before `meta.properties`. The node that is to join a quorum would have been one of its own."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    settings = config(tmp_path)
    users = choose_users(["SCRAM-SHA-512=[name=admin,password=secret]"], bytes)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(formatting, "format_dirs", interrupted)
        format_node(
            settings,
            runtime,
            CLUSTER_ID,
            ignore_formatted=False,
            first_voters=FirstVoters(standalone=True),
            levels=choose_levels("4.0", ()),
            users=users,
        )
    assert first_voters(settings, runtime) and read_users(runtime.disk, settings.metadata_log_dir)
    format_node(settings, runtime, CLUSTER_ID, ignore_formatted=False, first_voters=FirstVoters(none=True))
    assert first_voters(settings, runtime) == []
    assert read_levels(runtime.disk, settings.metadata_log_dir) == {}
    assert read_users(runtime.disk, settings.metadata_log_dir) == ()
