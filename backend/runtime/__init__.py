"""The embedded installation: ``manage.py up`` brings everything on one machine."""
