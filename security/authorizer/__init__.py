"""Who may do what: access control lists, and the authorizer that decides by them."""
