"""One file per stage; ``spark_jobs/main.py`` runs any set of them in one Spark application."""
