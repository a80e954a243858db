"""Version 3 of the interface: clusters, brokers, topics, configurations, consumer groups, records."""
