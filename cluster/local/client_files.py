"""What clients need to log in to a secured local cluster: files of settings, and examples that run.

The examples read the password from its file, so they show no secret, and may be copied.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...security.sasl.scram_credential import SCRAM_SHA_512
from ..settings.properties import format_properties

ADMIN, APP = "admin", "app"
"""The users that a secured cluster begins with: a super user, and one for applications."""
SECURITY_DIR = "security"
"""The directory with all secrets, below that of the cluster."""
ADMIN_PROPERTIES = os.path.join(SECURITY_DIR, "admin.properties")
"""How the commands log in that find the cluster by its directory."""
AUTHORITY_FILE, PASSWORD_FILE = "ca.crt", "app.password"
ADMIN_PASSWORD_FILE = "admin.password"
"""The password of `ADMIN_PROPERTIES`, for people who log in to the console."""
JAVA_FILE, LIBRDKAFKA_FILE = "client.properties", "librdkafka.conf"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}
EXAMPLES: Mapping[str, str] = {
    "example_confluent_kafka.py": '''"""Writes a record and reads it, with confluent-kafka."""

from pathlib import Path

from confluent_kafka import Consumer, Producer

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "bootstrap.servers": "@BOOTSTRAP@",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "app",
    "sasl.password": (HERE / "app.password").read_text(),
    "ssl.ca.location": str(HERE / "ca.crt"),
}

producer = Producer(SETTINGS)
producer.produce("example-confluent-kafka", b"hello")
producer.flush()
consumer = Consumer(SETTINGS | {"group.id": "example", "auto.offset.reset": "earliest"})
consumer.subscribe(["example-confluent-kafka"])
message = None
while message is None or message.error():
    message = consumer.poll(1.0)
print(message.value().decode())
consumer.close()
''',
    "example_kafka_python.py": '''"""Writes a record and reads it, with kafka-python."""

from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "bootstrap_servers": "@BOOTSTRAP@".split(","),
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "app",
    "sasl_plain_password": (HERE / "app.password").read_text(),
    "ssl_cafile": str(HERE / "ca.crt"),
}

producer = KafkaProducer(**SETTINGS)
producer.send("example-kafka-python", b"hello")
producer.close()
consumer = KafkaConsumer("example-kafka-python", auto_offset_reset="earliest", **SETTINGS)
print(next(consumer).value.decode())
consumer.close()
''',
    "example_aiokafka.py": '''"""Writes a record and reads it, with aiokafka."""

import asyncio
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.helpers import create_ssl_context

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "bootstrap_servers": "@BOOTSTRAP@",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "app",
    "sasl_plain_password": (HERE / "app.password").read_text(),
}


async def main():
    secure = create_ssl_context(cafile=str(HERE / "ca.crt"))
    admin = AIOKafkaAdminClient(ssl_context=secure, **SETTINGS)
    await admin.start()
    await admin.create_topics([NewTopic("example-aiokafka", 1, 1)])  # leaves it as it is if it is there
    await admin.close()
    async with AIOKafkaProducer(ssl_context=secure, **SETTINGS) as producer:
        await producer.send_and_wait("example-aiokafka", b"hello")
    consumer = AIOKafkaConsumer("example-aiokafka", auto_offset_reset="earliest", ssl_context=secure, **SETTINGS)
    async with consumer:
        print((await consumer.getone()).value.decode())


asyncio.run(main())
''',
    "example_spark.py": '''"""Writes a record and reads it, with Raftwerk's source for Spark, or with Spark's own.

    python example_spark.py
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1 example_spark.py kafka
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = (HERE / "app.password").read_text()
OPTIONS = {
    "kafka.bootstrap.servers": "@BOOTSTRAP@",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f\'{MODULE} required username="app" password="{PASSWORD}";\',
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": str(HERE / "ca.crt"),
}

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
source = sys.argv[1] if len(sys.argv) > 1 else "raftwerk"
spark = SparkSession.builder.getOrCreate()
if source == "raftwerk":
    from raftwerk.pipeline.source import RaftwerkDataSource

    spark.dataSource.register(RaftwerkDataSource)
lines = spark.createDataFrame([("hello",)], "value string")
lines.write.format(source).options(**OPTIONS).option("topic", "example-spark").mode("append").save()
records = spark.read.format(source).options(**OPTIONS).option("subscribe", "example-spark").load()
print(records.selectExpr("cast(value as string) as text").first().text)
''',
}
"""Programs by the name of their file, which write a record and read it."""


def java_properties(directory: str, bootstrap: str, user: str, mechanism: str, password: str) -> dict[str, str]:
    """The properties with which a client of Kafka for Java, or a command, logs in as a user."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{_MODULES[mechanism]} required username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(directory, SECURITY_DIR, AUTHORITY_FILE),
    }


def librdkafka_settings(directory: str, bootstrap: str, user: str, password: str) -> dict[str, str]:
    """The settings with which a client of librdkafka logs in as a user."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": SCRAM_SHA_512,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": os.path.join(directory, SECURITY_DIR, AUTHORITY_FILE),
    }


def write_client_files(directory: str, bootstrap: str, password: str) -> None:
    """Write all files for applications."""
    where = os.path.join(directory, SECURITY_DIR)
    java = java_properties(directory, bootstrap, APP, SCRAM_SHA_512, password)
    librdkafka = librdkafka_settings(directory, bootstrap, APP, password)
    texts = {
        PASSWORD_FILE: password,
        JAVA_FILE: format_properties(java),
        LIBRDKAFKA_FILE: "".join(f"{name}={value}\n" for name, value in librdkafka.items()),
        **{name: text.replace("@BOOTSTRAP@", bootstrap) for name, text in EXAMPLES.items()},
    }
    for name, text in texts.items():
        write_secret(os.path.join(where, name), text.encode())


def write_secret(path: str, data: bytes) -> None:
    """Replace a file, whole, by one that only its owner may read."""
    draft = f"{path}.new"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there, with more rights
        file.write(data)
    os.replace(draft, path)
