"""Transactions from the client's side: what operators see and end, and what a transactional producer asks for."""
