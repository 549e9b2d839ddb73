"""Runs what ``docker/compose.yaml`` describes without a container engine.

Each service gets what its container would have: namespaces for files, processes and its host name, a root file system
that is read-only if the file says so, its volumes at their paths, its user, and no other environment than its own. The
images are this machine's files with what the Dockerfile sets.
"""
