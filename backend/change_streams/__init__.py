"""Change streams: what a log of documents says about a multiset of records, sent as CDCv2, each change exactly once.

docs/adr/0021-change-streams.md gives the protocol.
"""
