"""The metadata quorum (KRaft): a state machine without I/O (`quorum`) and the asyncio shell around it (`driver`)."""
