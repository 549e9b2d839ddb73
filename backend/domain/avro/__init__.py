"""Avro within bounds: schemas that are finite, and data of limited depth and number of values.

The library reads and writes in native code, which follows a schema and data to any depth and for any number of values,
and chooses the branches of unions in a time that grows exponentially with their depth. What could exceed a limit there
is therefore bounded before: the schema when it is parsed, what is written always, and what is read if its bytes could
make more of it than the limits allow, which only large data or unusual schemas can.

Sections are those of the Avro specification 1.12, https://avro.apache.org/docs/1.12.0/specification/.
"""
