"""The simulator for applications: an application and a cluster in one process, on virtual time, with seeded faults."""
