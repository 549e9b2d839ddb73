"""Any statement that the grammar can express."""

from decimal import Decimal

from hypothesis import strategies as st

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s

_ALPHABET = st.characters(exclude_categories=["Cs", "Cc"])
names = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(["select", "my-postgres-jdbc", "a.b", "${x}", "IF", "Key", "it`s"]),
    st.text(_ALPHABET, min_size=1, max_size=8),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.one_of(
    st.integers(0, 2**63 - 1), st.decimals(0, 10**9, places=3).map(lambda number: Decimal(f"{number:.3f}"))
)
values = st.one_of(texts, st.integers(-(10**20), 10**20), st.booleans(), st.none(), numbers)


def some(strategy: st.SearchStrategy, least: int = 1) -> st.SearchStrategy:
    return st.lists(strategy, min_size=least, max_size=3).map(tuple)


types = st.recursive(
    st.one_of(
        st.sampled_from(
            ["VARCHAR", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIME", "TIMESTAMP", "BYTES"]
        ).map(e.PrimitiveType),
        st.integers(1, 38).flatmap(lambda size: st.builds(e.DecimalType, st.just(size), st.integers(0, size))),
    ),
    lambda inner: st.one_of(
        st.builds(e.ArrayType, inner),
        st.builds(e.MapType, inner, inner),
        st.builds(e.StructType, some(st.tuples(names, inner), 0)),
    ),
    max_leaves=5,
)
literals = st.builds(
    e.Literal,
    st.one_of(texts, numbers, st.booleans(), st.none(), st.floats(0, 1e300, allow_nan=False, allow_infinity=False)),
)
words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
functions = words.map(str.upper)


def _compound(inner: st.SearchStrategy) -> st.SearchStrategy:
    flag = st.booleans()
    two = st.lists(inner, min_size=2, max_size=3).map(tuple)
    operators = st.sampled_from(["+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(e.Field, inner, names),
        st.builds(e.Item, inner, inner),
        st.builds(e.Call, functions, some(inner, 0)),
        st.builds(e.Operation, inner, operators, inner),
        st.builds(e.Minus, inner),
        st.builds(e.AnyOf, two),
        st.builds(e.AllOf, two),
        st.builds(e.Not, inner),
        st.builds(e.IsNull, inner, flag),
        st.builds(e.Between, inner, inner, inner, flag),
        st.builds(e.InList, inner, some(inner), flag),
        st.builds(e.Like, inner, inner, flag),
        st.builds(e.Case, st.none() | inner, some(st.builds(e.When, inner, inner)), st.none() | inner),
        st.builds(e.Cast, inner, types),
        st.builds(e.Struct, some(st.tuples(names, inner))),
    )


expressions = st.recursive(
    st.one_of(
        literals,
        st.builds(e.Variable, words),
        st.builds(e.Column, names, st.none() | names),
        st.builds(e.Call, functions, every_row=st.just(True)),
    ),
    _compound,
    max_leaves=6,
)
durations = st.builds(s.Duration, st.integers(0, 10**6), st.sampled_from(s.UNITS))
optional_duration = st.none() | durations
windows = st.one_of(
    st.builds(
        s.Window, st.sampled_from(["TUMBLING", "SESSION"]), durations, st.none(), optional_duration, optional_duration
    ),
    st.builds(s.Window, st.just("HOPPING"), durations, durations, optional_duration, optional_duration),
)
relations = st.builds(s.Relation, names, st.none() | names)
joins = st.builds(
    s.Join,
    st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
    relations,
    expressions,
    st.none() | st.builds(s.Within, durations, durations, optional_duration),
)
items = st.builds(s.SelectItem, expressions, st.none() | names) | st.builds(s.SelectItem, source=st.none() | names)
queries = st.builds(
    s.Query,
    some(items),
    relations,
    some(joins, 0),
    st.none() | windows,
    st.none() | expressions,
    some(expressions, 0),
    some(expressions, 0),
    st.none() | expressions,
    st.sampled_from([None, "CHANGES", "FINAL"]),
    st.none() | st.integers(0, 1000),
)
properties = st.builds(
    lambda given, elided: s.Properties(tuple(s.Property(key, value) for key, value in given.items()), elided),
    st.dictionaries(
        st.one_of(st.sampled_from(["connector.class", "tasks.max", "KAFKA_TOPIC"]), texts), values, max_size=4
    ),
    st.booleans(),
)
columns = st.builds(s.ColumnDefinition, names, types, st.sampled_from([None, "KEY", "PRIMARY KEY"]))
create_as = st.builds(s.CreateAs, st.sampled_from(s.Kind), names, queries, properties, st.booleans(), st.booleans())
statements = st.one_of(
    st.builds(s.CreateConnector, st.sampled_from(s.Direction), names, properties, st.booleans()),
    st.builds(s.DropConnector, names, st.booleans(), st.booleans()),
    st.builds(s.ChangeConnector, st.sampled_from(s.Change), names),
    st.builds(s.Describe, names, st.just(True)),
    st.builds(s.Describe, names, extended=st.booleans()),
    st.builds(s.ShowConnectors, st.none() | st.sampled_from(s.Direction)),
    st.builds(s.ShowPlugins),
    st.builds(s.Show, st.sampled_from(s.Listing), st.booleans()),
    st.builds(s.CreateSecret, names, texts, st.booleans(), st.booleans()),
    st.builds(s.DropSecret, names, st.booleans()),
    st.builds(s.Define, names, texts),
    st.builds(s.Undefine, names),
    st.builds(s.Declare, st.sampled_from(s.Kind), names, some(columns, 0), properties, st.booleans(), st.booleans()),
    create_as,
    st.builds(s.DropSource, st.sampled_from(s.Kind), names, st.booleans(), st.booleans()),
    st.builds(s.InsertValues, names, some(names, 0), some(expressions)),
    st.builds(s.InsertSelect, names, queries),
    st.builds(s.Explain, names | queries | create_as),
    st.builds(s.Terminate, st.none() | names),
    st.builds(s.Print, names, st.booleans(), st.none() | st.integers(0, 100)),
    st.builds(s.Select, queries),
)
