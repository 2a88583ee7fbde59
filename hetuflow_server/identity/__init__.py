"""Identity: users, keys, tokens, logins, namespaces, and who may do what."""
