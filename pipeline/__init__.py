"""PySpark on Raftwerk: the session, a data source without jars, and jobs. Needs `pip install 'raftwerk[spark]'`."""
