"""`spark.dataSource.register(RaftwerkDataSource)`: Kafka topics as a Spark data source, without jars."""

from .data_source import RaftwerkDataSource

__all__ = ["RaftwerkDataSource"]
