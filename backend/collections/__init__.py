"""Collections: durable logs of documents, each a Delta Lake table that any lakehouse engine reads.

``CollectionReader`` reads one collection, ``CollectionWriter`` appends to it; both block, so an event loop calls them
in threads. The table of a collection (``table.py``) is partitioned by ``partition``; a row is a document:

=========== ============================ =====================================================================
column      type                         meaning
=========== ============================ =====================================================================
partition   integer                      number of the document's partition, from 0
offset      long                         its place there: dense and never given to another document
timestamp   timestamp                    when it was appended, in whole milliseconds; never falls in a partition
key         binary, null for none        the value of the output's key template
value       binary                       the body as it was received
headers     array<struct<key, value>>    text and bytes, as in Spark's Kafka source
deleted     boolean                      whether the document says that its key is deleted
=========== ============================ =====================================================================

Every commit moves application transactions (``txn`` actions of the Delta protocol), which fence concurrent writers and
hold what files do not tell:

====================== ==================================================================================
application id         version
====================== ==================================================================================
``end/P``              the offset that the next document of partition P gets
``source/NAME``        the next position to read of the source NAME: repeated messages are not appended twice
``files/P``            counts the changes of partition P's files that are no appends: merges, retention, resets
``reduced/P``          up to which offset only the last document of each key was kept
``stream/…``           how far a change stream has come (``backend/change_streams/checkpoint.py``)
``epoch``              the leader epoch, which grows by one at each reset; without it 0
``epoch/E/P``          the offset of partition P at which epoch E began
====================== ==================================================================================
"""
