"""HTTP endpoints, a file for each resource: they read a request, ask a service, and write the answer."""
