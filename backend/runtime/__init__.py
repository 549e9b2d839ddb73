"""The embedded installation: ``manage.py up`` runs the whole platform on one machine."""
